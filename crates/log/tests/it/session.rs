//! One conversation in a log: only one process can open it, a crash is recovered, a second writer is refused, and a
//! session can be removed.

use std::sync::Arc;

use allstop_core::record::{CallOutcome, SessionRecord, StartedCall, StartedCallKind};
use allstop_core::turn::SessionState;
use allstop_core::{
    CauseKind, Message, SessionId, SessionSettings, StopReason, Timestamp, TurnNumber, Usage,
};
use allstop_log::session::{decode, stream_of};
use allstop_log::{
    AppendId, Log, MemoryLog, SessionError, SessionWriter, SqliteLog, Version, list_sessions,
    read_session, remove_session,
};

/// An arbitrary time. The tests do not depend on the clock.
pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

pub(crate) fn turn_started(turn: u32) -> SessionRecord {
    SessionRecord::TurnStarted {
        turn: TurnNumber(turn),
        at: at(),
        input: "hello".into(),
        images: Vec::new(),
        owner: None,
        message: None,
        origin: allstop_core::record::TurnOrigin::User,
        reported: Vec::new(),
    }
}

pub(crate) fn model_call_started(turn: u32) -> SessionRecord {
    SessionRecord::CallStarted {
        turn: TurnNumber(turn),
        at: at(),
        call: StartedCall {
            id: "step_1".into(),
            name: "scripted".into(),
            kind: StartedCallKind::Model { reserved_tokens: 0 },
        },
    }
}

pub(crate) fn answered_and_committed(turn: u32) -> Vec<SessionRecord> {
    let answer = Message::Assistant {
        text: "hi".into(),
        tool_calls: vec![],
    };
    vec![
        SessionRecord::CallFinished {
            turn: TurnNumber(turn),
            id: "step_1".into(),
            outcome: CallOutcome::Succeeded,
            usage: Some(Usage {
                input_tokens: 3,
                cached_input_tokens: 0,
                cache_write_input_tokens: 0,
                output_tokens: 1,
                estimated: false,
            }),
            finish: None,
            exit_code: None,
            result: None,
        },
        SessionRecord::TurnCommitted {
            turn: TurnNumber(turn),
            at: at(),
            messages: vec![Arc::new(Message::user("hello")), Arc::new(answer)],
            usage: Usage {
                input_tokens: 3,
                cached_input_tokens: 0,
                cache_write_input_tokens: 0,
                output_tokens: 1,
                estimated: false,
            },
        },
    ]
}

fn memory() -> Arc<dyn Log> {
    Arc::new(MemoryLog::new())
}

pub(crate) async fn run_turn(session: &mut SessionWriter, turn: u32) {
    session.append(vec![turn_started(turn)]).await.unwrap();
    session
        .append(vec![model_call_started(turn)])
        .await
        .unwrap();
    session.append(answered_and_committed(turn)).await.unwrap();
}

pub(crate) async fn stored(log: &dyn Log, id: &str) -> Vec<SessionRecord> {
    let records = log
        .read(&stream_of(&id.into()), Version(1), 1_000)
        .await
        .unwrap();
    records
        .iter()
        .map(|(_, bytes)| decode(bytes).unwrap().unwrap())
        .collect()
}

#[tokio::test]
async fn state_is_the_fold_of_the_stored_records() {
    let log = memory();
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    run_turn(&mut session, 1).await;
    run_turn(&mut session, 2).await;
    assert_eq!(session.version(), Version(9));
    assert_eq!(session.state().conversation().messages.len(), 4);
    assert_eq!(
        *session.state(),
        SessionState::fold(&stored(&*log, "s").await).unwrap()
    );

    drop(session);
    let again = SessionWriter::resume(log.clone(), "s".into(), at())
        .await
        .unwrap();
    assert_eq!(again.recovered(), []);
    assert_eq!(
        *again.state(),
        SessionState::fold(&stored(&*log, "s").await).unwrap()
    );
}

#[tokio::test]
async fn resume_ends_the_turn_that_a_crash_left_open() {
    let log = memory();
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    run_turn(&mut session, 1).await;
    let committed = session.state().conversation().clone();
    session
        .append(vec![turn_started(2), model_call_started(2)])
        .await
        .unwrap();
    drop(session);

    let mut session = SessionWriter::resume(log.clone(), "s".into(), at())
        .await
        .unwrap();
    assert_eq!(session.recovered().len(), 2);
    assert!(session.state().open_turn().is_none());
    assert_eq!(*session.state().conversation(), committed);
    let last = session.state().turns().last().unwrap();
    assert_eq!(last.unknown_calls.len(), 1);
    let ending = last.ending.as_ref().unwrap();
    assert_eq!(ending.reason, StopReason::Error);
    assert_eq!(ending.cause.as_ref().unwrap().kind, CauseKind::Failure);
    run_turn(&mut session, 3).await;
    drop(session);

    let session = SessionWriter::resume(log, "s".into(), at()).await.unwrap();
    assert_eq!(session.recovered(), [], "recovery is written once");
}

#[tokio::test]
async fn resume_works_after_the_store_was_dropped_in_mid_turn() {
    let folder = tempfile::tempdir().unwrap();
    let open = || SqliteLog::open(folder.path().join("store.db"));
    let log = Arc::new(open().await.unwrap());
    let mut session = SessionWriter::create(log, "s".into(), at(), "/work", None)
        .await
        .unwrap();
    run_turn(&mut session, 1).await;
    session.append(vec![turn_started(2)]).await.unwrap();
    let (before, version) = (session.state().clone(), session.version());
    // The session is not closed, as if the process had ended. Only the lock is released, as the kernel would do.
    drop(session);

    let log = Arc::new(open().await.unwrap());
    let (read, _) = read_session(&*log, &"s".into()).await.unwrap();
    assert_eq!(read, before);
    let mut session = resume_when_free(log).await;
    assert_eq!(session.recovered().len(), 1);
    assert_eq!(session.version().0, version.0 + 1);
    assert_eq!(session.state().conversation(), before.conversation());
    run_turn(&mut session, 3).await;
}

/// Resumes the session after the thread of the dropped store has released the lock.
async fn resume_when_free(log: Arc<dyn Log>) -> SessionWriter {
    loop {
        match SessionWriter::resume(log.clone(), "s".into(), at()).await {
            Err(SessionError::InUse { .. }) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

#[tokio::test]
async fn session_has_one_owner_at_a_time() {
    let log = memory();
    let session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    let second = SessionWriter::resume(log.clone(), "s".into(), at()).await;
    assert!(
        matches!(second, Err(SessionError::InUse { owner: Some(o), .. }) if o.pid == std::process::id())
    );
    assert!(matches!(
        remove_session(&*log, &"s".into()).await,
        Err(SessionError::InUse { .. })
    ));
    drop(session);
    assert!(
        SessionWriter::resume(log.clone(), "s".into(), at())
            .await
            .is_ok()
    );
    let again = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None).await;
    assert!(matches!(again, Err(SessionError::Exists(_))));
    let unknown = SessionWriter::resume(log.clone(), "t".into(), at()).await;
    assert!(matches!(unknown, Err(SessionError::NotFound(_))));
    assert!(
        log.list("")
            .await
            .unwrap()
            .iter()
            .all(|(name, _)| name.as_str() == "session/s")
    );
}

#[tokio::test]
async fn illegal_records_are_not_written() {
    let log = memory();
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    session.append(vec![turn_started(1)]).await.unwrap();
    let (before, version) = (session.state().clone(), session.version());
    // The first record would be allowed, but the second is not. So neither of them is written.
    let refused = session
        .append(vec![model_call_started(1), turn_started(2)])
        .await;
    assert!(matches!(refused, Err(SessionError::Illegal(_))));
    assert_eq!((session.state(), session.version()), (&before, version));
    assert_eq!(stored(&*log, "s").await.len(), 2);
    session.append(vec![model_call_started(1)]).await.unwrap();
}

#[tokio::test]
async fn writer_is_fenced_after_another_has_appended() {
    let log = memory();
    let mut session = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None)
        .await
        .unwrap();
    log.append(
        &stream_of(&"s".into()),
        Version(1),
        AppendId(9),
        vec!["{}".into()],
    )
    .await
    .unwrap();
    let before = session.state().clone();
    for _ in 0..2 {
        let refused = session.append(vec![turn_started(1)]).await;
        assert!(matches!(
            refused,
            Err(SessionError::Fenced { actual: Version(2) })
        ));
    }
    assert_eq!(*session.state(), before);
}

#[tokio::test]
async fn sessions_are_listed_read_and_removed_without_opening() {
    let log = memory();
    let mut used = SessionWriter::create(log.clone(), "b".into(), at(), "/work", None)
        .await
        .unwrap();
    run_turn(&mut used, 1).await;
    used.append(vec![turn_started(2)]).await.unwrap();
    drop(
        SessionWriter::create(log.clone(), "a".into(), at(), "/work", None)
            .await
            .unwrap(),
    );
    log.append(
        &stream_of(&"c".into()),
        Version(0),
        AppendId(9),
        vec!["{}".into()],
    )
    .await
    .unwrap();

    let listed = list_sessions(&*log).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["c", "a", "b"]);
    assert!(listed[1].owner.is_none() && listed[1].turns == 0 && listed[1].problem.is_none());
    assert!(listed[2].owner.is_some() && listed[2].turns == 2 && listed[2].turn_open);
    assert_eq!(listed[2].last_stop_reason, Some(StopReason::Completed));
    assert!(matches!(
        listed[0].problem,
        Some(SessionError::Unreadable {
            version: Version(1),
            ..
        })
    ));

    let (state, owner) = read_session(&*log, &"b".into()).await.unwrap();
    assert_eq!((&state, owner.is_some()), (used.state(), true));
    remove_session(&*log, &"a".into()).await.unwrap();
    assert!(matches!(
        read_session(&*log, &"a".into()).await,
        Err(SessionError::NotFound(_))
    ));
    assert!(matches!(
        remove_session(&*log, &"a".into()).await,
        Err(SessionError::NotFound(_))
    ));
    used.delete().await.unwrap();
    assert_eq!(list_sessions(&*log).await.unwrap().len(), 1);
}

#[tokio::test]
async fn changed_settings_are_recorded_and_survive_a_compaction() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let settings = |model: &str| Arc::new(SessionSettings::new(Some(model), None, "/f"));
    let at = Timestamp::from_unix_ms(0);
    let id = SessionId::from("s");
    let first = Some(settings("one"));
    let mut session = SessionWriter::create(Arc::clone(&log), id.clone(), at, "/f", first)
        .await
        .unwrap();
    assert_eq!(session.version(), Version(2));
    session.change_settings(settings("one"), at).await.unwrap();
    assert_eq!(session.version(), Version(2), "nothing has changed");
    session.change_settings(settings("two"), at).await.unwrap();
    let compacted = SessionRecord::Compacted {
        at,
        messages_dropped: 2,
        turns_dropped: 1,
        summary: None,
        usage: Usage::default(),
    };
    let turn = [turn_started(1), model_call_started(1)].into_iter();
    let turn = turn.chain(answered_and_committed(1)).chain([compacted]);
    session.append(turn.collect()).await.unwrap();
    drop(session);
    let session = SessionWriter::resume(log, id, at).await.unwrap();
    assert_eq!(session.state().settings(), Some(&settings("two")));
}
