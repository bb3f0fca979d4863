//! Background tasks, and the reports about background work that the session's owner receives.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::record::{Attachment, BackgroundKind};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest, WorkSpec};
use allstop_tools::background::ENDED_WORKS_MAX;
use allstop_tools::{
    BackgroundHost, BackgroundRegistry, BackgroundTool, BackgroundWork, BoundedOutput, CallLink,
    OutputFolder, OutputLimits, TaskCx, TaskSpec, Tool as _, ToolInvocation, start_task,
};
use serde_json::{Value, json};

use crate::support::{Session, is_alive, wait_until};

struct Stage {
    root: Scope,
    host: Arc<BackgroundRegistry>,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let root = Scope::root("session", RootOptions::single_runtime());
        let jobs = root.child("background", ScopeOptions::default()).unwrap();
        Self {
            root,
            host: Arc::new(BackgroundRegistry::new(jobs)),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn start<F>(&self, make: impl FnOnce(TaskCx) -> F + Send + 'static) -> Arc<BackgroundWork>
    where
        F: Future<Output = Result<String, String>> + Send + 'static,
    {
        let limits = OutputLimits::default()
            .head_bytes_max(4)
            .tail_bytes_max(4)
            .file_bytes_max(12);
        let folder = Arc::new(OutputFolder::new(self.folder.path()));
        let spec = TaskSpec::new(
            "call_1",
            self.host.scope(),
            "research",
            BoundedOutput::new(limits, folder),
            allstop_tools::CallLink::unwatched("call".into()),
        );
        start_task(&*self.host, spec, make).unwrap()
    }

    async fn tool(&self, arguments: Value, scope: &Scope) -> Result<String, String> {
        let host: Arc<dyn BackgroundHost> = Arc::clone(&self.host) as _;
        let tool = BackgroundTool::new(host);
        let mut invocation = Session::invocation("background", arguments, scope);
        invocation.link = CallLink::default();
        let invocation: ToolInvocation = invocation;
        let answer = tool.call(invocation).await;
        answer
            .map(|output| output.content.to_string())
            .map_err(|error| error.message)
    }
}

fn by_user() -> Cause {
    Cause::new(CauseKind::User)
}

#[tokio::test(start_paused = true)]
async fn end_of_a_task_is_reported_with_its_answer() {
    let stage = Stage::new();
    let mut changes = stage.host.changes().subscribe();
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let work = stage.start(|cx| async move {
        cx.output.push("looking");
        drop(goes.await);
        Ok("it is 42".to_owned())
    });
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_eq!(
        (work.kind(), work.attachment()),
        (BackgroundKind::Agent, Attachment::Attached)
    );
    assert!(work.is_running() && work.process().is_none());
    let running = stage.root.running();
    assert_eq!(
        (&*running[0].id, running[0].kind),
        ("bg_1", ItemKind::Background)
    );
    go.send(()).unwrap();
    changes.changed().await.unwrap();
    let end = work.end().expect("a reported change is visible");
    assert_eq!(end.answer.as_deref(), Some("it is 42"));
    assert_eq!((end.state.as_str(), end.failed), ("finished", false));
    assert_eq!(work.ended().await, end);
    assert_eq!(work.output(), "looking");
    assert!(stage.root.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn ended_task_closes_its_output_file() {
    let stage = Stage::new();
    let (go, goes) = tokio::sync::oneshot::channel::<()>();
    let work = stage.start(|cx| async move {
        cx.output.open_file();
        drop(goes.await);
        Ok(String::new())
    });
    let file = || {
        let mut files = std::fs::read_dir(stage.folder.path()).unwrap();
        let path = files.next()?.unwrap().path();
        Some(std::fs::File::open(path).unwrap())
    };
    wait_until("it has a file", || file().is_some()).await;
    assert!(file().unwrap().try_lock().is_err(), "the task uses it");
    go.send(()).unwrap();
    work.ended().await;
    wait_until("it is closed", || file().unwrap().try_lock().is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn failed_or_panicked_task_does_not_affect_its_siblings() {
    let stage = Stage::new();
    let fails = stage.start(|_| async { Err("no budget".to_owned()) });
    let panics = stage.start(|_| async { panic!("on purpose") });
    let panics_at_once = stage.start(|cx: TaskCx| -> std::future::Ready<Result<String, String>> {
        drop(cx);
        panic!("on purpose")
    });
    let goes_on = stage.start(|_| std::future::pending());
    for (work, said) in [
        (fails, "no budget"),
        (panics, "the task panicked"),
        (panics_at_once, "the task panicked"),
    ] {
        let end = work.ended().await;
        assert_eq!((end.failed, end.answer.as_deref()), (true, Some(said)));
        assert_eq!(end.state.as_str(), "finished");
    }
    assert!(goes_on.is_running());
}

#[tokio::test(start_paused = true)]
async fn end_of_a_stopped_task_matches_the_receipt() {
    let stage = Stage::new();
    let listens = stage.start(|cx| async move {
        let cause = cx.scope.stopped_at("between two steps").await;
        Err(format!("stopped: {cause}"))
    });
    let deaf = stage.start(|_| std::future::pending());
    tokio::task::yield_now().await;
    let not_begun = stage.start(|_| std::future::pending());
    let receipt = stage
        .root
        .stop(StopRequest::new(Extent::Session, by_user()))
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    for (work, how) in [
        (listens, "acknowledged"),
        (deaf, "dropped"),
        (not_begun, "not_begun"),
    ] {
        let item = receipt
            .items()
            .iter()
            .find(|item| *item.id == *work.id.as_str());
        let item = serde_json::to_value(item.unwrap()).unwrap();
        let end = serde_json::to_value(work.end().unwrap().state).unwrap();
        assert_eq!(
            (&item["state"], &item["how"]),
            (&json!("stopped"), &json!(how))
        );
        assert_eq!(
            (&end["state"], &end["how"]),
            (&json!("stopped"), &json!(how))
        );
        assert_eq!(end["verified"], item["verified"], "{end} {item}");
    }
}

#[tokio::test]
async fn leftovers_of_a_task_end_before_the_task_counts_as_ended() {
    let stage = Stage::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = stage.start(|cx| async move {
        let left = std::future::pending::<()>();
        drop(
            cx.scope
                .spawn(WorkSpec::new(ItemKind::Future, "left"), |_| left),
        );
        tell.send(()).unwrap();
        Ok("done".to_owned())
    });
    told.await.unwrap();
    let end = work.ended().await;
    assert!(stage.root.is_quiet());
    assert_eq!(
        (end.state.as_str(), end.answer.as_deref()),
        ("finished", Some("done"))
    );
}

#[tokio::test(start_paused = true)]
async fn new_scope_accepts_work_after_a_stop_of_all() {
    let stage = Stage::new();
    let old = stage.start(|_| std::future::pending());
    drop(
        stage
            .host
            .scope()
            .stop(StopRequest::new(Extent::Subtree, by_user()))
            .await,
    );
    assert!(!old.is_running());
    stage.host.reopen(
        stage
            .root
            .child("background", ScopeOptions::default())
            .unwrap(),
    );
    let new = stage.start(|_| async { Ok("again".to_owned()) });
    assert_eq!(
        (new.id.as_str(), new.ended().await.answer.as_deref()),
        ("bg_2", Some("again"))
    );
}

#[tokio::test(start_paused = true)]
async fn oldest_ended_work_is_forgotten_and_running_work_is_not() {
    let stage = Stage::new();
    let runs = stage.start(|_| std::future::pending());
    for _ in 0..ENDED_WORKS_MAX + 5 {
        stage.start(|_| async { Ok(String::new()) }).ended().await;
    }
    let _last = stage.start(|_| std::future::pending());
    let works = stage.host.works();
    assert_eq!(works.len(), ENDED_WORKS_MAX + 2);
    assert_eq!(works[0].id, runs.id);
    assert_eq!(works[1].id.as_str(), "bg_7");
}

#[tokio::test(start_paused = true)]
async fn output_from_an_offset_counts_missing_bytes() {
    let stage = Stage::new();
    let work = stage.start(|cx| async move {
        cx.output.push("abcdefghij");
        cx.output.push("klmnopqrst\u{e4}");
        Ok(String::new())
    });
    work.ended().await;
    // The file has the first twelve bytes; memory has the first four and at least the last four.
    let read = |offset, max| {
        let slice = work.output_from(offset, max);
        assert_eq!(slice.total_bytes, 22);
        (slice.text, slice.next_offset, slice.missing_bytes)
    };
    assert_eq!(read(0, 3), ("abc".to_owned(), 3, 0));
    assert_eq!(read(2, 8), ("cdefghij".to_owned(), 10, 0));
    let (mut text, mut offset, mut lost) = (String::new(), 0, 0);
    while offset < 22 {
        let (piece, next, missing) = read(offset, 5);
        assert!(next > offset, "no progress at {offset}");
        (offset, lost) = (next, lost + missing);
        text += &piece;
    }
    assert!(
        text.starts_with("abcdefghijkl") && text.ends_with("st\u{e4}"),
        "{text}"
    );
    assert_eq!(text.len() as u64 + lost, 22);
    // A piece splits no character, unless it would otherwise be empty.
    assert_eq!(read(19, 2), ("t".to_owned(), 20, 0));
    assert_eq!(read(22, 9), (String::new(), 22, 0));
    assert_eq!(read(99, 9), (String::new(), 22, 0));
}

#[tokio::test(start_paused = true)]
async fn wait_ends_at_the_end_the_limit_or_a_stop() {
    let stage = Stage::new();
    let turn = stage.root.child("turn", ScopeOptions::default()).unwrap();
    let _work = stage.start(|cx| async move {
        cx.output.push("hm");
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok("it is 42".to_owned())
    });
    let wait =
        |timeout_s: Option<u32>| json!({"action": "wait", "id": "bg_1", "timeout_s": timeout_s});
    let began = tokio::time::Instant::now();
    let answer = stage.tool(wait(Some(5)), &turn).await;
    assert_eq!(answer.as_deref(), Ok("hm\n[after 5 s: running]"));
    assert_eq!(began.elapsed().as_secs(), 5);
    let answer = stage.tool(wait(None), &turn).await;
    assert_eq!(answer.as_deref(), Ok("hm\n[ended]\nit is 42"));
    assert_eq!(began.elapsed().as_secs(), 60);
    let answer = stage
        .tool(
            json!({"action": "output", "id": "bg_1", "offset": 1}),
            &turn,
        )
        .await;
    assert_eq!(
        answer.as_deref(),
        Ok("m\n[ended; the next offset is 2 of 2 bytes so far]")
    );

    let _second = stage.start(|_| std::future::pending());
    let arguments = json!({"action": "wait", "id": "bg_2"});
    let began = tokio::time::Instant::now();
    let (answer, receipt) = tokio::join!(stage.tool(arguments, &turn), async {
        tokio::task::yield_now().await;
        turn.stop(StopRequest::new(Extent::Turn, by_user())).await
    });
    assert_eq!(
        answer,
        Err("bg_2: running; the wait was stopped: user".to_owned())
    );
    assert!(receipt.quiet());
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(stage.host.works()[1].is_running());
}

#[tokio::test]
async fn end_of_a_command_is_reported_with_complete_output() {
    let session = Session::new();
    let command = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo last";
    let mut changes = session.host.changes().subscribe();
    let arguments = json!({"command": command, "background": true});
    session.call("shell", arguments).await.unwrap();
    changes.changed().await.unwrap();
    let work = session.host.works().remove(0);
    wait_until("it runs", || session.path("pid").exists()).await;
    session.put("go", "");
    changes.changed().await.unwrap();
    assert_eq!(work.end().unwrap().exit_code, Some(0));
    assert_eq!(work.output(), "last\n");
    assert!(!is_alive(
        &std::fs::read_to_string(session.path("pid")).unwrap()
    ));
}
