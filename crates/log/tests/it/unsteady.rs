//! A session on a store that loses answers, stops answering or is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use allstop_core::record::SessionRecord;
use allstop_log::{
    AppendError, AppendId, Log, LogError, LogErrorKind, LogFuture, LogWrapper, MemoryLog,
    RecordBytes, SessionError, SessionWriter, StreamName, Version,
};
use futures::FutureExt;
use parking_lot::Mutex;

use crate::session::{at, model_call_started, run_turn, stored, turn_started};

/// A log that uses a log in memory. Its appends fail as the test has configured.
#[derive(Debug, Default)]
pub(crate) struct Unsteady {
    log: MemoryLog,
    /// Faults of the next appends. The fault of the next append is at the end of the list.
    pub(crate) faults: Mutex<Vec<Fault>>,
    /// Number of records that were read.
    pub(crate) records_read: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    WrittenButAnswerLost,
    NotWrittenAndAnswerLost,
    WrittenAndNeverAnswers,
    NotWrittenAndNeverAnswers,
    Full,
}

impl LogWrapper for Unsteady {
    fn inner(&self) -> &dyn Log {
        &self.log
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let fault = self.faults.lock().pop();
        if matches!(fault, Some(Fault::NotWrittenAndAnswerLost)) {
            return LogFuture::ready(Err(AppendError::Indeterminate));
        }
        if matches!(fault, Some(Fault::Full)) {
            return LogFuture::ready(Err(LogError::new(LogErrorKind::Full, "disk").into()));
        }
        if matches!(fault, Some(Fault::NotWrittenAndNeverAnswers)) {
            return LogFuture::waiting(std::future::pending());
        }
        let answer = self.log.append(stream, expected, id, records);
        match fault {
            Some(Fault::WrittenButAnswerLost) => LogFuture::ready(Err(AppendError::Indeterminate)),
            Some(_) => LogFuture::waiting(std::future::pending()),
            None => answer,
        }
    }
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let read = self.log.read(stream, from, limit).now_or_never();
        let read = read.expect("a log in memory answers at once");
        let len = read.as_ref().map_or(0, Vec::len);
        self.records_read.fetch_add(len, Ordering::Relaxed);
        LogFuture::ready(read)
    }
}

#[tokio::test]
async fn lost_answer_is_retried_and_nothing_is_written_twice() {
    for faults in [
        vec![Fault::WrittenButAnswerLost],
        vec![Fault::NotWrittenAndAnswerLost],
        vec![Fault::WrittenButAnswerLost, Fault::NotWrittenAndAnswerLost],
    ] {
        let log = Arc::new(Unsteady::default());
        let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
            .await
            .unwrap();
        *log.faults.lock() = faults;
        run_turn(&mut session, 1).await;
        assert_eq!(stored(&*log, "s").await.len(), 5);
    }
}

#[tokio::test]
async fn silent_store_is_reported_and_settled_by_the_next_append() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    *log.faults.lock() = vec![Fault::WrittenButAnswerLost; 3];
    let silent = session.append(vec![turn_started(1)]).await;
    assert!(matches!(silent, Err(SessionError::Indeterminate)));
    assert!(
        session.state().open_turn().is_none(),
        "an unsettled append is not in the state"
    );
    session.append(vec![model_call_started(1)]).await.unwrap();
    assert_eq!(stored(&*log, "s").await.len(), 3);
}

#[tokio::test]
async fn a_dropped_append_is_settled_by_the_next() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    *log.faults.lock() = vec![Fault::WrittenAndNeverAnswers];
    {
        let mut append = Box::pin(session.append(vec![turn_started(1)]));
        assert!(matches!(futures::poll!(&mut append), Poll::Pending));
    }
    session.settle().await.unwrap();
    assert!(session.state().open_turn().is_some());
    assert_eq!(stored(&*log, "s").await.len(), 2);
}

#[tokio::test]
async fn full_store_leaves_the_session_unchanged_and_usable() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    let before = session.state().clone();
    *log.faults.lock() = vec![Fault::Full];
    let full = session.append(vec![turn_started(1)]).await;
    assert!(matches!(full, Err(SessionError::Log(e)) if e.kind() == LogErrorKind::Full));
    assert_eq!(*session.state(), before);
    run_turn(&mut session, 1).await;
}

#[tokio::test]
async fn full_store_after_a_lost_answer_does_not_mean_unwritten() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    *log.faults.lock() = vec![Fault::Full, Fault::Full, Fault::WrittenButAnswerLost];
    let unknown = session.append(vec![turn_started(1)]).await;
    assert!(matches!(unknown, Err(SessionError::Indeterminate)));
    // The first attempt was written, although the store refused the later attempts. The session continues after these
    // records, and does not take them for records of another writer.
    session.append(vec![model_call_started(1)]).await.unwrap();
    assert_eq!(stored(&*log, "s").await.len(), 3);
}

/// The events in refused records have still happened, so the caller can take these records back.
#[tokio::test]
async fn unwritten_records_are_returned() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    *log.faults.lock() = vec![Fault::Full];
    let full = session.append(vec![turn_started(1)]).await;
    assert!(matches!(full, Err(SessionError::Log(_))));
    assert_eq!(session.take_refused_records(), [turn_started(1)]);

    *log.faults.lock() = vec![Fault::NotWrittenAndNeverAnswers; 2];
    for records in [vec![turn_started(1)], vec![model_call_started(1)]] {
        let mut append = Box::pin(session.append(records));
        assert!(matches!(futures::poll!(&mut append), Poll::Pending));
    }
    assert!(
        !session.is_settled(),
        "the first append may still be written"
    );
    assert_eq!(session.take_refused_records(), [model_call_started(1)]);
    session.append(vec![model_call_started(1)]).await.unwrap();
    assert!(session.take_refused_records().is_empty());
    assert_eq!(stored(&*log, "s").await.len(), 3);
}

#[tokio::test]
async fn turn_without_an_ending_is_ended_before_the_next() {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    session.append(vec![turn_started(1)]).await.unwrap();
    run_turn(&mut session, 2).await;
    let ended = |record: &SessionRecord| matches!(record, SessionRecord::TurnStopped { .. });
    assert!(ended(&stored(&*log, "s").await[2]));
    assert_eq!(session.state().conversation().turns, 1);
}
