//! Stopping many cooperating futures to verified quiet, against a bare tracker with a token for each.

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopOrder, WorkSpec};
use criterion::{Criterion, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const FUTURES: usize = 10_000;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}

async fn bare() {
    let token = CancellationToken::new();
    let tracker = TaskTracker::new();
    for _ in 0..FUTURES {
        let child = token.child_token();
        tracker.spawn(async move { child.cancelled().await });
    }
    token.cancel();
    tracker.close();
    tracker.wait().await;
}

async fn scoped() {
    let scope = Scope::root("bench", RootOptions::current());
    let spec = WorkSpec::new(ItemKind::Future, "future");
    for _ in 0..FUTURES {
        scope
            .spawn(spec.clone(), |cx| async move {
                drop(cx.stopped_at("idle").await);
            })
            .expect("nothing is stopped yet");
    }
    let receipt = scope
        .stop(StopOrder::new(Extent::Process, Cause::new(CauseKind::User)))
        .await;
    assert!(receipt.quiet() && receipt.items().len() == FUTURES);
}

fn stop(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("spawn and stop 10,000 futures");
    group.sample_size(30);
    group.bench_function("bare tracker and tokens", |b| {
        b.to_async(&runtime).iter(bare);
    });
    group.bench_function("allstop scope, with receipt", |b| {
        b.to_async(&runtime).iter(scoped);
    });
    group.finish();
}

criterion_group!(benches, stop);
criterion_main!(benches);
