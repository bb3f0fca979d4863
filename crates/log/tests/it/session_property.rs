//! A session on a log that loses answers, is full, or stops answering at any time. The state always equals the stored
//! records, and no record is lost or duplicated.

use std::sync::Arc;
use std::task::Poll;

use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{Cause, CauseKind, StopReason, TurnNumber, Usage};
use allstop_log::{LogErrorKind, SessionError, SessionWriter};
use futures::poll;
use proptest::prelude::*;

use crate::property::block_on;
use crate::session::{answered_and_committed, at, model_call_started, stored, turn_started};
use crate::unsteady::{Fault, Unsteady};

/// An operation that the owner of the session performs.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// Appends the next records of the owner's turn.
    GoOn,
    /// Stops the open turn, if there is one.
    StopTurn,
    /// Appends records that are not allowed.
    Nonsense,
    Settle,
    /// Drops the session, as in a crash, and resumes it.
    Resume,
}

fn doings() -> impl Strategy<Value = Vec<(Do, Vec<Fault>, bool)>> {
    let what = prop_oneof![
        8 => Just(Do::GoOn),
        1 => Just(Do::StopTurn),
        1 => Just(Do::Nonsense),
        2 => Just(Do::Settle),
        2 => Just(Do::Resume),
    ];
    let fault = prop_oneof![
        Just(Fault::WrittenButAnswerLost),
        Just(Fault::NotWrittenAndAnswerLost),
        Just(Fault::WrittenAndNeverAnswers),
        Just(Fault::NotWrittenAndNeverAnswers),
        Just(Fault::Full),
    ];
    let faults = prop_oneof![
        2 => Just(Vec::new()),
        3 => prop::collection::vec(fault, 1..5),
    ];
    prop::collection::vec((what, faults, any::<bool>()), 1..24)
}

/// Expected content of the log: first the records that are certainly written, and then perhaps the uncertain records.
#[derive(Default)]
struct Books {
    certain: Vec<SessionRecord>,
    perhaps: Vec<SessionRecord>,
}

impl Books {
    /// Checks that the log contains each appended record once and in order, and that the state is the fold of these
    /// records.
    async fn check(&mut self, log: &Unsteady, session: &SessionWriter) {
        let found = stored(log, "s").await;
        let whole = [&self.certain[..], &self.perhaps[..]].concat();
        assert!(
            found == self.certain || found == whole,
            "{found:#?} is neither {:#?} nor with {:#?}",
            self.certain,
            self.perhaps
        );
        let known = usize::try_from(session.version().0).unwrap();
        let state = SessionState::fold(&found[..known]).unwrap();
        assert_eq!(
            *session.state(),
            state,
            "the state differs from the stored records"
        );
        if known == whole.len() {
            self.certain = whole;
            self.perhaps.clear();
        }
        assert_eq!(
            known,
            self.certain.len(),
            "acknowledged records are in the state"
        );
    }
}

/// The next records of a turn.
fn next_records(state: &SessionState) -> Vec<SessionRecord> {
    match state.open_turn() {
        None => vec![turn_started(state.next_turn().0)],
        Some(turn) if turn.steps() == 0 => vec![model_call_started(turn.number().0)],
        Some(turn) => answered_and_committed(turn.number().0),
    }
}

fn stop(state: &SessionState) -> Vec<SessionRecord> {
    // The recovery records can end a turn in any state.
    let mut records = state.recovery_records(at());
    if let Some(SessionRecord::TurnStopped { reason, cause, .. }) = records.last_mut() {
        (*reason, *cause) = (StopReason::Cancelled, Cause::new(CauseKind::User));
    }
    records
}

fn nonsense(state: &SessionState) -> Vec<SessionRecord> {
    let mut records = next_records(state);
    records.push(SessionRecord::TurnCommitted {
        turn: TurnNumber(state.next_turn().0 + 7),
        at: at(),
        messages: Vec::new(),
        usage: Usage::default(),
    });
    records
}

async fn run(doings: Vec<(Do, Vec<Fault>, bool)>) {
    let log = Arc::new(Unsteady::default());
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    let mut books = Books {
        certain: stored(&*log, "s").await,
        ..Books::default()
    };
    for (what, faults, is_heard) in doings {
        let records = match what {
            Do::StopTurn if session.state().open_turn().is_some() => stop(session.state()),
            Do::GoOn | Do::StopTurn => next_records(session.state()),
            Do::Nonsense => nonsense(session.state()),
            Do::Settle => Vec::new(),
            Do::Resume => {
                drop(session);
                session = SessionWriter::resume(log.clone(), "s".into(), at())
                    .await
                    .unwrap();
                // All uncertain records are now certain, and the crashed turn has an ending.
                books.certain = stored(&*log, "s").await;
                books.perhaps.clear();
                assert!(session.state().open_turn().is_none());
                books.check(&log, &session).await;
                continue;
            }
        };
        let unsettled = books.perhaps.clone();
        *log.faults.lock() = faults;
        let answer = {
            let mut asked = Box::pin(async {
                match what {
                    Do::Settle => session.settle().await,
                    _ => session.append(records.clone()).await,
                }
            });
            match poll!(&mut asked) {
                Poll::Ready(answer) => Some(answer),
                // In this case, the store does not answer the append.
                Poll::Pending => None,
            }
        };
        log.faults.lock().clear();
        // The session first settles the open append, and then sends the new records.
        let known = usize::try_from(session.version().0).unwrap();
        match answer {
            Some(Ok(())) => {
                books.certain.extend(unsettled);
                books.certain.extend(records);
                books.perhaps.clear();
            }
            Some(Err(SessionError::Illegal(_))) => {
                assert!(known == books.certain.len() + unsettled.len());
                books.certain.extend(unsettled);
                books.perhaps.clear();
            }
            Some(Err(SessionError::Log(error))) => {
                assert_eq!(error.kind(), LogErrorKind::Full);
                // The error proves that no record of this append was written.
                assert!(known == books.certain.len() + unsettled.len());
                books.certain.extend(unsettled);
                books.perhaps.clear();
            }
            Some(Err(SessionError::Indeterminate)) | None => {
                if !unsettled.is_empty() && known > books.certain.len() {
                    books.certain.extend(unsettled);
                    books.perhaps = records;
                } else if unsettled.is_empty() {
                    books.perhaps = records;
                }
            }
            Some(Err(other)) => panic!("nobody else writes: {other:?}"),
        }
        books.check(&log, &session).await;
        if is_heard {
            // The store works again, so the next call settles the open append.
            session.settle().await.unwrap();
            let pending = std::mem::take(&mut books.perhaps);
            books.certain.extend(pending);
            books.check(&log, &session).await;
        }
    }
    session.settle().await.unwrap();
    assert_eq!(
        *session.state(),
        SessionState::fold(&stored(&*log, "s").await).unwrap()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn session_on_an_unsteady_store_equals_its_records(doings in doings()) {
        block_on(run(doings));
    }
}
