//! Stops many cooperating futures until it is verified that none runs any more. The comparison is a plain tracker with
//! a token for each future. All futures have begun. Only the stop is timed, from the request to the last ending. The
//! time includes the creation of the receipt.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allstop_bench::{BenchSuite, Figure};
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, ReceiptItem};
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopRequest, WorkSpec};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const FUTURES: usize = 10_000;

fn main() -> ExitCode {
    let runtime = runtime();
    let mut suite = BenchSuite::from_args();
    suite.run(
        Figure::new("stop 10,000 futures, receipt made and read", || {
            runtime.block_on(scoped())
        })
        .rounds(60)
        .against("tracker and child tokens", || runtime.block_on(bare()))
        .ratio_at_most(2.0),
    );
    suite.finish()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}

/// Counts the futures that have been polled.
#[derive(Default)]
struct Begun {
    count: AtomicUsize,
    all: Notify,
}

impl Begun {
    fn one_more(&self) {
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == FUTURES {
            self.all.notify_one();
        }
    }
}

async fn bare() -> Duration {
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    let begun = Arc::new(Begun::default());
    for _ in 0..FUTURES {
        let (child, begun) = (token.child_token(), Arc::clone(&begun));
        tracker.spawn(async move {
            begun.one_more();
            child.cancelled().await;
        });
    }
    begun.all.notified().await;
    let asked = Instant::now();
    token.cancel();
    tracker.close();
    tracker.wait().await;
    asked.elapsed()
}

async fn scoped() -> Duration {
    let scope = Scope::root("bench", RootOptions::current());
    let begun = Arc::new(Begun::default());
    let spec = WorkSpec::new(ItemKind::Future, "future");
    for _ in 0..FUTURES {
        let begun = Arc::clone(&begun);
        let work = scope.spawn(spec.clone(), |cx| async move {
            begun.one_more();
            drop(cx.stopped_at("idle").await);
        });
        drop(work.expect("nothing is stopped yet"));
    }
    begun.all.notified().await;
    let asked = Instant::now();
    let stop = scope.stop(StopRequest::new(
        Extent::Process,
        Cause::new(CauseKind::User),
    ));
    let receipt = stop.receipt().await;
    let items = receipt
        .items()
        .iter()
        .filter(|item| has_heard(item))
        .count();
    let took = asked.elapsed();
    assert!(receipt.quiet() && items == FUTURES, "{items} have heard");
    took
}

/// True if the work observed the stop. If the work had not begun, the benchmark would measure nothing.
fn has_heard(item: &ReceiptItem) -> bool {
    matches!(
        item.state,
        ItemState::Stopped {
            how: EndMethod::Acknowledged,
            ..
        }
    )
}
