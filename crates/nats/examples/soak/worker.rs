//! A worker in a separate process. The worker exits when its standard input ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use allstop_process::{ContainmentChoice, KeeperProgram, Keepers};
use allstop_scope::{RootOptions, Scope};
use allstop_task::TaskParts;
use tokio::io::AsyncReadExt as _;

use super::nodes::{join, open_log};
use super::options::WorkerOptions;
use super::work::{SoakExecutor, WorkPlace};

/// Number of tasks that a worker runs at the same time.
const CONCURRENCY: usize = 16;

const GRACE: Duration = Duration::from_millis(500);

pub(crate) async fn run(options: WorkerOptions) -> ExitCode {
    let program = KeeperProgram {
        executable: "/proc/self/exe".into(),
        args: vec!["keep".into()],
    };
    let keepers = Keepers::with_subreaper(program).expect("Linux");
    let scope = Scope::root(
        "worker",
        RootOptions::current()
            .grace(GRACE)
            .containment(ContainmentChoice::Keeper(Arc::clone(&keepers))),
    );
    let log = open_log(&options.servers, &scope).await;
    let parts = TaskParts::of(SoakExecutor {
        place: Some(WorkPlace {
            ledger: options.ledger,
            containment: ContainmentChoice::Keeper(Arc::clone(&keepers)),
        }),
    });
    let deadline_keepers = Arc::clone(&keepers);
    let manager = join(log, scope, parts, |cluster| {
        cluster.concurrency = CONCURRENCY;
        cluster.lease = options.lease.0;
        cluster.on_renewal = Some(Arc::new(move |left| {
            deadline_keepers
                .postpone_deadline(left)
                .expect("a deadline");
        }));
        cluster.on_overdue = Some(Arc::new(|| std::process::abort()));
    });
    let manager = manager.await;
    let mut nothing = Vec::new();
    // An error of the read also ends the wait.
    drop(tokio::io::stdin().read_to_end(&mut nothing).await);
    let report = manager.shutdown(GRACE * 10, "the soak is over");
    drop(report.await);
    keepers.close();
    ExitCode::SUCCESS
}
