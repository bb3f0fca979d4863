//! Process trees without an agent.

use std::time::Duration;

use allstop::core::receipt::ItemKind;
use allstop::prelude::*;
use allstop::process::{ContainmentChoice, ProcessSpec};
use allstop::scope::WorkSpec;

/// A process that no search can find: it left the group and the session, cleared its environment and lost its parent.
const ESCAPES: &str = "env -i setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null 2>&1'; sleep 600";

/// Regression: the JSON of the evidence did not name the weakness of a search for processes.
#[tokio::test]
async fn evidence_of_a_search_names_the_processes_that_it_can_miss() {
    let scope = Scope::root("job", RootOptions::current());
    let spec = ProcessSpec::new("sh", format!("test-{}", std::process::id()))
        .args(["-c", ESCAPES])
        .cwd("/")
        .containment(ContainmentChoice::GroupAndMarker);
    let work = WorkSpec::new(ItemKind::Process, "sh");
    let (_process, mut output) = scope.spawn_process(work, spec).expect("sh starts");
    let mut buffer = [0; 32];
    let len = output
        .read(&mut buffer)
        .await
        .expect("the pipe can be read");
    let pid = String::from_utf8_lossy(&buffer[..len]).trim().to_owned();

    let request = StopRequest::new(Extent::Process, CauseKind::User.into());
    let receipt = scope.stop(request.grace(Duration::ZERO)).await;

    let escaped = std::process::Command::new("kill").arg(&pid).status();
    assert!(
        escaped.expect("kill runs").success(),
        "{pid} did not escape"
    );
    let text = receipt.to_string();
    assert!(text.contains("as far as a search can find"), "{text}");
    let state = serde_json::to_value(&receipt.items()[0].state).expect("JSON");
    assert_eq!(state["verified"], "process_group_empty", "{state}");
    assert_eq!(state["may_miss"], "escaped_processes", "{state}");
}
