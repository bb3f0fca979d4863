//! Tests of a full disk. SQLite simulates the full disk with a limit for the number of pages in the file.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::connection;
use super::stream_notifier::StreamNotifier;
use super::writer::{QueuedAppend, StoreWriter, WriteCommand};
use crate::{AppendError, AppendId, LogErrorKind, StreamName, Version};

type Answer = oneshot::Receiver<Result<Version, AppendError>>;

fn append(stream: &str, expected: u64, bytes: usize) -> (WriteCommand, Answer) {
    let (reply, answer) = oneshot::channel();
    let append = QueuedAppend {
        stream: StreamName::new(stream),
        expected: Version(expected),
        id: AppendId(u128::from(expected)),
        records: vec![vec![b'x'; bytes].into()],
        reply,
    };
    (WriteCommand::Append(append), answer)
}

/// Runs a writer with a store of at most `pages` pages. All commands are in the queue before the writer starts, so they
/// form one group.
fn serve(
    folder: &TempDir,
    pages: u32,
    commands: Vec<(WriteCommand, Answer)>,
) -> Vec<Result<Version, AppendError>> {
    let path: Arc<_> = folder.path().join("store.db").into();
    let store = connection::open(&path).expect("the folder is there");
    store
        .connection
        .pragma_update(None, "max_page_count", pages)
        .expect("SQLite knows it");
    let (writes, waiting) = mpsc::channel(commands.len());
    let answers: Vec<_> = commands
        .into_iter()
        .map(|(command, answer)| {
            writes.try_send(command).expect("there is room for all");
            answer
        })
        .collect();
    drop(writes);
    StoreWriter::new(store, path, Arc::new(StreamNotifier::default())).run(waiting);
    answers
        .into_iter()
        .map(|mut answer| answer.try_recv().expect("each is answered once"))
        .collect()
}

#[test]
fn append_that_does_not_fit_fails_alone() {
    const SMALL: usize = 100;
    const LARGE: usize = 400_000;
    let folder = tempfile::tempdir().unwrap();
    let group = vec![
        append("a", 0, SMALL),
        append("b", 0, LARGE),
        append("b", 1, SMALL),
        append("a", 1, SMALL),
        append("a", 9, SMALL),
    ];
    let answers = serve(&folder, 20, group);
    assert!(matches!(answers[0], Ok(Version(1))), "{answers:?}");
    assert!(
        matches!(&answers[1], Err(AppendError::Log(e)) if e.kind() == LogErrorKind::Full),
        "{answers:?}"
    );
    // This append expects the version that the stream would have after the append that did not fit.
    assert!(
        matches!(
            answers[2],
            Err(AppendError::Conflict { actual: Version(0) })
        ),
        "{answers:?}"
    );
    assert!(matches!(answers[3], Ok(Version(2))), "{answers:?}");
    assert!(
        matches!(
            answers[4],
            Err(AppendError::Conflict { actual: Version(2) })
        ),
        "{answers:?}"
    );

    // When there is more space, the same appends succeed, and no append is written twice.
    let again = vec![
        append("a", 0, SMALL),
        append("a", 1, SMALL),
        append("b", 0, LARGE),
        append("b", 1, SMALL),
    ];
    let answers = serve(&folder, 1_000, again);
    let versions: Vec<u64> = answers
        .into_iter()
        .map(|answer| answer.unwrap().0)
        .collect();
    assert_eq!(versions, [1, 2, 1, 2]);
}
