//! A page of the list of tasks. The cost of a page must not increase with the number of tasks in the store, because
//! messages wait while the page is computed.

use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure, each_of};
use allstop_log::MemoryLog;
use allstop_scope::GRACE_DEFAULT;
use allstop_task::{ListFilter, TaskManager};
use futures::FutureExt as _;
use tokio::runtime::Runtime;

use crate::product::{self, ThreeEvents};

const FEW: usize = 1_000;
const MANY: usize = 20_000;
const PAGE_LEN: usize = 100;
const PAGES: u32 = 20;

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let name = "page of 100 of 20,000 tasks";
    if !suite.wants(name) {
        return;
    }
    let (few, many) = runtime.block_on(async { (tasks(FEW).await, tasks(MANY).await) });
    suite.run(
        Figure::new(name, || page(&many))
            .against("of 1,000 tasks", || page(&few))
            .ratio_at_most(2.0),
    );
}

async fn tasks(count: usize) -> TaskManager {
    let scope = product::root(GRACE_DEFAULT);
    let manager = product::manager(&scope, Arc::new(MemoryLog::new()), ThreeEvents).await;
    for id in 0..count {
        let mut task = product::begin(&manager, id, "").await;
        while let Some(item) = task.subscription.next().await {
            item.expect("the log is in memory");
        }
    }
    manager
}

fn page(manager: &TaskManager) -> Duration {
    let filter = ListFilter::default().owner(product::OWNER);
    each_of(PAGES, || {
        let page = manager.list(&filter, None, PAGE_LEN).now_or_never();
        page.expect("it never waits").expect("one machine")
    })
}
