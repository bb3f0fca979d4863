//! Processes that are being launched when a stop is accepted.

#![expect(
    clippy::disallowed_methods,
    reason = "a thread of the test races the scope, and is joined"
)]

use std::fs;

use allstop_core::receipt::ItemKind;
use allstop_process::{ContainmentChoice, ProcessSpec};
use allstop_scope::{SpawnProcessError, WorkSpec};

use crate::{by_user, root};

/// A `sleep` command that is easy to find in `/proc`.
fn sleep(duration: &str) -> ProcessSpec {
    ProcessSpec::new("sleep", format!("launches-{duration}"))
        .args([duration])
        .cwd("/")
        .containment(ContainmentChoice::GroupAndMarker)
}

fn is_running(duration: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).nth(1) == Some(duration.as_bytes()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launch_is_either_in_the_receipt_or_never_ran() {
    let (mut ran, mut refused) = (0, 0);
    for round in 0..60 {
        let scope = root();
        let duration = format!("600.{}{round:04}", std::process::id());
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let launcher = {
            let (scope, spec) = (scope.clone(), sleep(&duration));
            let runtime = tokio::runtime::Handle::current();
            std::thread::Builder::new().spawn(move || {
                let _inside = runtime.enter();
                gone.recv().expect("the test sends");
                scope.spawn_process(WorkSpec::new(ItemKind::Process, "sleep"), spec)
            })
        };
        go.send(()).expect("the launcher waits");
        // The time of the stop moves in steps of a few microseconds, from long before the launch until after the
        // launch.
        for _ in 0..round * 40 {
            std::hint::spin_loop();
        }
        let receipt = scope.stop(by_user()).await;
        let spawned = launcher.expect("a thread").join().expect("no panic");
        match spawned {
            Ok(_) => {
                ran += 1;
                assert_eq!(
                    receipt.items().len(),
                    1,
                    "it is in the extent: {receipt:#?}"
                );
                assert!(receipt.items()[0].containment.is_some());
            }
            Err(SpawnProcessError::NotStarted(_)) => {
                refused += 1;
                assert!(receipt.items().is_empty());
            }
            Err(SpawnProcessError::Launch(error)) => panic!("{error}"),
        }
        assert!(receipt.quiet());
        assert!(!is_running(&duration));
    }
    assert_eq!(ran + refused, 60);
}
