//! Background work, and the tool `background`.

use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::StopRequest;
use allstop_tools::BackgroundHost as _;
use serde_json::json;

use crate::support::{Session, refused, wait_until};

#[tokio::test]
async fn background_command_returns_at_once_and_can_be_stopped() {
    let session = Session::new();
    assert_eq!(
        session
            .call("background", json!({"action": "list"}))
            .await
            .as_deref(),
        Ok("[no background work]")
    );
    let command = "echo ready; exec sleep 600";
    let answer = session
        .call("shell", json!({"command": command, "background": true}))
        .await
        .unwrap();
    let work = session.host.works().remove(0);
    let file = work.output_file.clone().unwrap();
    assert_eq!(
        answer,
        format!(
            "bg_1 runs in the background; its output goes to {}",
            file.display()
        )
    );
    wait_until("it prints", || work.output() == "ready\n").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ready\n");
    let list = session
        .call("background", json!({"action": "list"}))
        .await
        .unwrap();
    assert_eq!(
        list,
        format!(
            "bg_1: `echo ready; exec sleep 600`, running, output in {}\n",
            file.display()
        )
    );
    let output = session
        .call("background", json!({"action": "output", "id": "bg_1"}))
        .await;
    assert_eq!(output.as_deref(), Ok("ready\n\n[running]"));
    assert_eq!(
        session.call("read", json!({"path": file})).await.as_deref(),
        Ok("ready\n")
    );

    let stopped = session
        .call("background", json!({"action": "stop", "id": "bg_1"}))
        .await;
    assert_eq!(
        stopped.as_deref(),
        Ok("bg_1 was stopped; nothing of it runs any more")
    );
    assert!(session.root.is_quiet());
    let again = session
        .call("background", json!({"action": "stop", "id": "bg_1"}))
        .await;
    assert_eq!(
        again.as_deref(),
        Ok("bg_1 is not running: ended, killed by signal 15")
    );
    refused(
        session
            .call("background", json!({"action": "stop", "id": "bg_9"}))
            .await,
        "unknown background work \"bg_9\"",
    );
    refused(
        session
            .call("background", json!({"action": "output"}))
            .await,
        "bg_1: `echo ready",
    );
}

#[tokio::test]
async fn ended_background_work_shows_its_exit_code() {
    let session = Session::new();
    session
        .call(
            "shell",
            json!({"command": "echo x; exit 3", "background": true}),
        )
        .await
        .unwrap();
    let work = session.host.works().remove(0);
    assert_eq!(work.ended().await.exit_code, Some(3));
    wait_until("the scope is quiet", || session.root.is_quiet()).await;
    let output = session
        .call("background", json!({"action": "output", "id": "bg_1"}))
        .await;
    assert_eq!(output.as_deref(), Ok("x\n\n[ended, exit code 3]"));
}

#[tokio::test]
async fn background_output_is_bounded_and_does_not_block_the_command() {
    let session = Session::new();
    let command = "head -c 100000000 /dev/zero | tr '\\0' x; echo end";
    session
        .call("shell", json!({"command": command, "background": true}))
        .await
        .unwrap();
    let work = session.host.works().remove(0);
    wait_until("it ends", || !work.is_running()).await;
    wait_until("it is drained", || work.output().ends_with("xend\n")).await;
    assert!(work.output().len() < 40_000);
    let in_file = std::fs::read(work.output_file.as_ref().unwrap()).unwrap();
    let (kept, end) = in_file.split_at(64 * 1024 * 1024);
    assert!(kept.iter().all(|byte| *byte == b'x'));
    let reason = "the output file has reached the limit of 64 MiB";
    assert_eq!(
        String::from_utf8_lossy(end),
        format!("\n[further output is not kept: {reason}]\n")
    );
    let list = session.call("background", json!({"action": "list"})).await;
    let cut = "the first 67108864 bytes of the output in ";
    assert!(list.clone().unwrap().contains(cut), "{list:?}");
}

#[tokio::test]
async fn background_work_survives_a_turn_stop_but_not_a_session_stop() {
    let session = Session::new();
    session
        .call("shell", json!({"command": "sleep 600", "background": true}))
        .await
        .unwrap();
    session
        .call("shell", json!({"command": "sleep 601 &"}))
        .await
        .unwrap();
    let cause = || Cause::new(CauseKind::User);
    let receipt = session
        .turn
        .stop(StopRequest::new(Extent::Turn, cause()).bystander(&session.host.scope()))
        .await;
    assert!(receipt.quiet());
    let states: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| (&*item.id, item.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [("bg_1", "still_running"), ("bg_2", "still_running")]
    );
    let receipt = session
        .root
        .stop(StopRequest::new(Extent::Session, cause()))
        .await;
    assert!(receipt.quiet(), "{receipt:?}");
    let states: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| (&*item.id, item.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [("bg_1", "stopped"), ("bg_2", "stopped")],
        "{receipt:?}"
    );
}

#[tokio::test]
async fn stopped_session_accepts_no_background_work() {
    let session = Session::new();
    let receipt = session
        .host
        .scope()
        .stop(StopRequest::new(
            Extent::Session,
            Cause::new(CauseKind::User),
        ))
        .await;
    assert!(receipt.quiet());
    let answer = session
        .call("shell", json!({"command": "sleep 600", "background": true}))
        .await;
    refused(answer, "the command had started, and is stopped: user");
    assert!(session.host.works().is_empty());
    // The command still belongs to the call, and ends when the call ends.
    let receipt = session
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)))
        .await;
    assert!(receipt.quiet());
    assert!(session.root.is_quiet());
}

#[tokio::test]
async fn background_work_without_an_output_folder_runs_and_reports_it() {
    let session = Session::new();
    std::fs::remove_dir(session.temporary.path().join("spill")).unwrap();
    std::fs::write(session.temporary.path().join("spill"), "in the way").unwrap();
    let command = "head -c 100000 /dev/zero | tr '\\0' x; echo end";
    let answer = session
        .call("shell", json!({"command": command, "background": true}))
        .await;
    assert_eq!(answer.as_deref(), Ok("bg_1 runs in the background"));
    let work = session.host.works().remove(0);
    wait_until("it is drained", || work.output().ends_with("xend\n")).await;
    assert!(
        work.output()
            .contains("bytes left out; they are lost, because no file could be created")
    );
}
