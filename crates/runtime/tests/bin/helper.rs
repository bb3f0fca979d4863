//! A separate process for the tests of the runtime.
//!
//! ```text
//! allstop-runtime-helper keep-call COMMAND…            a keeper
//! allstop-runtime-helper own FOLDER SESSION TOKEN MODE starts a background `sleep TOKEN` in a session, and then
//!     MODE `hold`:  prints `ready` and waits to be killed
//!     MODE `keep`:  prints `ready`, detaches the work, prints `kept` and waits to be killed
//!     MODE `say`:   records the work as detached without detaching it, prints `ready` and waits to be killed
//! ```

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_log::AppendId;
use allstop_log::session::{encode, stream_of};
use allstop_model::{Reply, ScriptedModel};
use allstop_process::{ContainmentChoice, KeeperProgram, Keepers, identity_of, keeper_main};
use allstop_runtime::{Config, ModelChoice, SessionSetup, StoreChoice, System, SystemOptions};
use allstop_scope::RootOptions;
use allstop_tools::PermissionAnswer;
use allstop_tools::permission::FixedAnswer;
use serde_json::json;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("keep-call") => keeper_main(),
        Some("own") => {
            let args: Vec<String> = args.filter_map(|arg| arg.into_string().ok()).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            match runtime.block_on(own(&args)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    drop(writeln!(std::io::stderr(), "{error}"));
                    ExitCode::FAILURE
                }
            }
        }
        _ => ExitCode::FAILURE,
    }
}

async fn own(args: &[&str]) -> Result<(), Failure> {
    let [folder, session, token, mode] = *args else {
        return Err("see the head of the source".into());
    };
    let folder = Path::new(folder);
    let command = format!("echo up; exec sleep {token}");
    let model = ScriptedModel::new(vec![
        Reply::default().call("shell", json!({"command": command, "background": true})),
        Reply::text("started"),
    ]);
    let keeper = KeeperProgram {
        executable: std::env::current_exe()?,
        args: vec!["keep-call".into()],
    };
    let options = SystemOptions::new(Config::default(), folder)
        .model(ModelChoice::Given(Arc::new(model)))
        .store(StoreChoice::Sqlite(folder.join("store.db")))
        .spill_folder(folder.join("output"))
        .scopes(
            RootOptions::single_runtime()
                .containment(ContainmentChoice::Keeper(Keepers::new(keeper))),
        )
        .prompter(Arc::new(FixedAnswer(PermissionAnswer::AllowOnce)))
        .owner(identity_of(std::process::id()));
    let system = System::open(options).await?;
    let open = system
        .new_session(Some(session.into()), SessionSetup::default())
        .await?;
    let session = open.session;
    session.send("go")?.outcome().await;
    if mode == "say" {
        // The owner handles requests in order, so this reply proves that the owner has written all records of the turn.
        if session.detach(&"none".into()).await.is_ok() {
            return Err("there is no such work".into());
        }
        let stream = stream_of(session.id());
        let streams = system.log().list(stream.as_str()).await?;
        let (_, version) = streams.first().ok_or("the session has no log")?;
        let records = session.background().into_iter().map(|work| {
            let id = work.id.clone();
            let mut bytes = Vec::new();
            encode(&SessionRecord::BackgroundDetached { id }, &mut bytes);
            bytes.into()
        });
        let id = AppendId(u128::MAX);
        system
            .log()
            .append(&stream, *version, id, records.collect())
            .await?;
    }
    say("ready")?;
    if mode == "keep" {
        let detached = session.detach_background().await?;
        if detached.iter().any(|work| work.refused.is_some()) {
            return Err(format!("{detached:?}").into());
        }
        say("kept")?;
    }
    std::future::pending().await
}

fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")?;
    std::io::stdout().flush()
}
