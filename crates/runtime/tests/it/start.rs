//! Errors during the start of a system or a session: one line, with a hint.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::record::CallOutcome;
use allstop_log::StreamName;
use allstop_log::Version;
use allstop_model::Reply;
use allstop_runtime::{
    Config, ModelChoice, SessionSetup, StartError, StartErrorKind, StoreChoice, System,
    SystemOptions,
};
use allstop_session::SessionEventKind;
use serde_json::json;

use crate::{Place, owner_answers, within};

fn checked(error: StartError, kind: StartErrorKind) -> String {
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.message.contains('\n'), "{error}");
    assert!(
        error.hint.is_some_and(|hint| !hint.contains('\n')),
        "{}",
        error.message
    );
    error.message
}

async fn refused(options: SystemOptions, kind: StartErrorKind) -> String {
    let error = within(System::open(options))
        .await
        .expect_err("it does not open");
    checked(error, kind)
}

#[tokio::test]
async fn models() {
    let place = Place::new();
    let with = |config: &str| place.options(config, None);
    assert_eq!(
        refused(with(""), StartErrorKind::NoModel).await,
        "no model is configured"
    );
    assert_eq!(
        refused(
            with("[model]\nbase_url = \"http://127.0.0.1:1\""),
            StartErrorKind::NoModel
        )
        .await,
        "the base URL needs the name of a model"
    );
    let unknown = refused(with("[model]\nname = \"nosuch::x\""), StartErrorKind::Model).await;
    assert!(unknown.contains("nosuch"), "{unknown}");
    let no_key = refused(
        with("[model]\nname = \"openai::gpt-x\""),
        StartErrorKind::Model,
    )
    .await;
    assert_eq!(
        no_key,
        "OPENAI_API_KEY is not set (needed for openai::gpt-x)"
    );
    assert_eq!(
        refused(
            with(
                "[model]\nname = \"x\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"MY_KEY\""
            ),
            StartErrorKind::Model
        )
        .await,
        "the environment variable MY_KEY is not set (needed for the model's key)"
    );
    let no_url = refused(
        with("[model]\nname = \"x\"\nbase_url = \"nonsense\""),
        StartErrorKind::Model,
    )
    .await;
    assert!(no_url.contains("nonsense"), "{no_url}");
    assert!(!place.file("store.db").exists(), "nothing was touched");
}

#[tokio::test]
async fn scripts() {
    let place = Place::new();
    std::fs::write(place.file("bad.yaml"), "replies:\n  - txt: hello\n").unwrap();
    let script = |name: &str| {
        let name = format!("script:{}", place.file(name).display());
        let config = Config::parse(
            std::path::Path::new("c"),
            &format!("[model]\nname = '{name}'"),
        )
        .unwrap();
        let mut options = place.options("", None);
        options.config = config;
        options
    };
    let bad = refused(script("bad.yaml"), StartErrorKind::Script).await;
    assert!(bad.contains("bad.yaml:2:5"), "{bad}");
    let none = refused(script("none.yaml"), StartErrorKind::Script).await;
    assert!(none.contains("none.yaml"), "{none}");
    // A URL, which may come from the environment, does not hide the error.
    let mut beside_url = script("none.yaml");
    beside_url.config.model.base_url = Some("http://127.0.0.1:1".to_owned());
    refused(beside_url, StartErrorKind::Script).await;
}

#[tokio::test]
async fn folders() {
    let place = Place::new();
    let mut options = place.options("[workspace]\nread = [\"/nowhere/at/all\"]", Some(script()));
    let said = refused(options, StartErrorKind::Folder).await;
    assert_eq!(
        said,
        "the allowed folder /nowhere/at/all cannot be used: No such file or directory (os error 2)"
    );
    for recording in [place.file("nowhere/script.yaml"), place.path().to_owned()] {
        options = place.options("", Some(script()));
        options.record = Some(recording);
        let said = refused(options, StartErrorKind::Folder).await;
        assert!(said.starts_with("the recording"), "{said}");
    }
    // Regression: a recording replaced a script that a person had written.
    let written = place.file("mine.yaml");
    std::fs::write(&written, "# My script.\nreplies: []\n").unwrap();
    options = place.options("", Some(script()));
    options.record = Some(written.clone());
    let said = refused(options, StartErrorKind::Folder).await;
    assert!(said.contains("no recording"), "{said}");
    std::fs::write(&written, "# Recorded from script::x.\nreplies: []\n").unwrap();
    options = place.options("", Some(script()));
    options.record = Some(written);
    System::open(options)
        .await
        .expect("it replaces a recording");
    options = place.options("", Some(script()));
    options.folder = place.file("nowhere");
    assert!(
        refused(options, StartErrorKind::Folder)
            .await
            .starts_with("the working directory")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_allowed_to_read_cannot_be_written() {
    let (place, outside) = (Place::new(), Place::new());
    let (read, write) = (outside.file("read"), outside.file("write"));
    std::fs::create_dir(&read).unwrap();
    std::fs::create_dir(&write).unwrap();
    std::fs::write(read.join("a"), "known").unwrap();
    let config = format!(
        "[workspace]\nread = [{read:?}]\nwrite = [{write:?}]\n[permissions]\nallow = ['read', 'write']"
    );
    let calls = Reply::text("")
        .call("read", json!({ "path": read.join("a") }))
        .call("write", json!({ "path": read.join("b"), "content": "x" }))
        .call("write", json!({ "path": write.join("b"), "content": "x" }));
    let system = place
        .system(&config, vec![calls, Reply::text("Done.")])
        .await;
    let session = system.new_session(None, SessionSetup::default()).await;
    let session = session.unwrap().session;
    let mut events = session.watch();
    let turn = within(session.send("go").unwrap().outcome()).await;
    assert_eq!(&*turn.output, "Done.");
    let mut outcomes = BTreeMap::new();
    while let Some(event) = events.try_next() {
        if let SessionEventKind::Live(AgentEvent::ToolFinished {
            call_id, outcome, ..
        }) = event.kind
        {
            outcomes.insert(call_id, outcome);
        }
    }
    let outcomes: Vec<_> = outcomes.into_values().collect();
    let expected = [
        CallOutcome::Succeeded,
        CallOutcome::Failed,
        CallOutcome::Succeeded,
    ];
    assert_eq!(outcomes, expected);
    assert!(!read.join("b").exists());
    assert!(write.join("b").exists());
}

fn script() -> allstop_model::ScriptedModel {
    allstop_model::ScriptedModel::new(Vec::new())
}

#[tokio::test]
async fn stores() {
    let place = Place::new();
    std::fs::write(
        place.file("garbage.db"),
        "no store at all, only some text that is long enough".repeat(99),
    )
    .unwrap();
    for (path, said) in [
        (
            place.file("garbage.db"),
            "the file is not an Allstop store, or is damaged",
        ),
        (
            place.file("nowhere/store.db"),
            "the store or its folder does not exist",
        ),
        (place.path().to_owned(), ""),
        ("/proc/store.db".into(), ""),
    ] {
        let mut options = place.options("", Some(script()));
        options.store = StoreChoice::Sqlite(path.clone());
        let error = within(System::open(options))
            .await
            .expect_err("it does not open");
        assert_eq!(error.kind, StartErrorKind::Store);
        assert!(!error.kind.is_usage());
        assert!(error.message.starts_with(said), "{error}");
        assert_eq!(
            error.message.matches("not a database").count(),
            usize::from(said.contains("damaged"))
        );
        assert!(
            error.message.contains(&path.display().to_string()),
            "{error}"
        );
    }
}

#[tokio::test]
async fn sessions() {
    let place = Place::new();
    let system = System::open(place.options("", Some(script())))
        .await
        .unwrap();
    let unknown = system
        .resume_session("s1".into(), SessionSetup::default())
        .await
        .unwrap_err();
    assert_eq!(
        checked(unknown, StartErrorKind::UnknownSession),
        "session `s1` not found"
    );
    let open = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await
        .unwrap();
    let other = System::open(place.options("", Some(script())))
        .await
        .unwrap();
    let in_use = other
        .resume_session("s1".into(), SessionSetup::default())
        .await
        .unwrap_err();
    assert_eq!(
        checked(in_use, StartErrorKind::SessionInUse),
        format!(
            "the session `s1` is in use by process {}",
            std::process::id()
        )
    );
    within(open.session.close()).await;
    let exists = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await
        .unwrap_err();
    assert_eq!(
        checked(exists, StartErrorKind::SessionExists),
        "the session `s1` already exists"
    );
    let before = versions(&system).await;
    let open = system
        .resume_session("s1".into(), SessionSetup::default())
        .await
        .unwrap();
    assert!(open.interrupted.is_none() && open.found.is_empty());
    within(owner_answers(&open.session)).await;
    assert_eq!(versions(&system).await, before, "nothing was recovered");
    within(open.session.close()).await;
    system.close().await;
}

async fn versions(system: &System) -> Vec<(StreamName, Version)> {
    system.log().list("").await.expect("the store works")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_store_and_recording() {
    let place = Place::new();
    let model = allstop_model::ScriptedModel::new(vec![allstop_model::Reply::text("hello")]);
    let mut options = place.options("", None);
    options.model = Some(ModelChoice::Given(Arc::new(model)));
    options.store = StoreChoice::Memory;
    options.record = Some(place.file("recorded.yaml"));
    let system = System::open(options).await.unwrap();
    assert_eq!(
        &*within(crate::one_turn(&system, "hi")).await.output,
        "hello"
    );
    system.save_recording().await.unwrap().unwrap();
    let mut options = place.options("", None);
    options.model = Some(ModelChoice::Scripted(place.file("recorded.yaml")));
    let system = System::open(options).await.unwrap();
    assert_eq!(
        &*within(crate::one_turn(&system, "hi")).await.output,
        "hello"
    );
}
