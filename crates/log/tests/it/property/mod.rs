//! Random operations in random order on each kind of log. Each result must equal the result of the reference log.

mod books;
mod opened;
mod ops;

use allstop_log::{StreamName, Version};
use proptest::prelude::*;

use books::Books;
use opened::{InMemory, OnDisk, Opened};
use ops::{Op, STREAMS, ops};

async fn run(mut opened: impl Opened, ops: &[(usize, Op)]) {
    let mut books = Books::default();
    for (which, op) in ops {
        if let Op::Reopen = op {
            // Locks that the test holds stay held. The closed store releases them later.
            opened.reopen().await;
        } else {
            books.step(opened.handle(*which), *which, op).await;
        }
    }
    opened.reopen().await;
    let log = opened.handle(0);
    for name in STREAMS.map(StreamName::new) {
        let found = log.read(&name, Version(1), usize::MAX).await.unwrap();
        assert_eq!(found, books.reference.read(&name, Version(1), usize::MAX));
    }
    assert_eq!(log.list("").await.unwrap(), books.reference.list(""));
}

/// Runs on a separate runtime. The threads of the stores need no runtime.
pub(crate) fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn memory_log_equals_the_reference(ops in ops()) {
        block_on(run(InMemory::new(), &ops));
    }
}

proptest! {
    // The number of cases is small, because each append is synced and each case opens the store again.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_log_equals_the_reference(ops in ops()) {
        block_on(async { run(OnDisk::new().await, &ops).await });
    }
}
