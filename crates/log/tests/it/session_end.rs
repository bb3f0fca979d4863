//! Tests that a list of sessions, and the resumption of a compacted session, read only the end of a long session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use allstop_core::ids::BackgroundId;
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::turn::SessionState;
use allstop_core::{StopReason, TurnNumber, Usage};
use allstop_log::session::{encode, stream_of};
use allstop_log::{
    AppendId, Log, MemoryLog, SessionWriter, SqliteLog, Version, list_sessions, read_session,
    read_session_end,
};

use crate::session::{answered_and_committed, at, model_call_started, run_turn, turn_started};
use crate::unsteady::Unsteady;

/// Number of turns: more than a read of the end of a session ever needs.
const TURNS: u32 = 300;

fn whole_turn(turn: u32) -> Vec<SessionRecord> {
    let begin = vec![turn_started(turn), model_call_started(turn)];
    begin
        .into_iter()
        .chain(answered_and_committed(turn))
        .collect()
}

/// A compaction after `turns` turns with two messages each. It drops all turns except the last `turns_kept` turns.
fn compacted(turns: u32, turns_kept: u32) -> SessionRecord {
    SessionRecord::Compacted {
        at: at(),
        messages_dropped: 2 * (turns - turns_kept),
        turns_dropped: turns - turns_kept,
        summary: Some("They said hello.".into()),
        usage: Usage {
            input_tokens: 100,
            cached_input_tokens: 0,
            cache_write_input_tokens: 0,
            output_tokens: 7,
            estimated: false,
        },
    }
}

fn background_started(number: u32) -> SessionRecord {
    SessionRecord::BackgroundStarted {
        id: BackgroundId::new(format!("bg_{number}")),
        turn: TurnNumber(1),
        call_id: "call_1".into(),
        name: "sleep 9".into(),
        kind: BackgroundKind::Shell,
        attachment: Attachment::Attached,
        process: None,
        keeper: None,
        marker: None,
        output: None,
    }
}

async fn long_session(log: Arc<dyn Log>) -> SessionWriter {
    let created = SessionWriter::create(log, "s".into(), at(), "/work", None).await;
    let mut session = created.unwrap();
    session.append(whole_turn(1)).await.unwrap();
    let works = (1..=3).map(background_started).collect();
    session.append(works).await.unwrap();
    for turn in 2..=TURNS {
        session.append(whole_turn(turn)).await.unwrap();
    }
    session
}

fn take_read(log: &Unsteady) -> usize {
    log.records_read.swap(0, Ordering::Relaxed)
}

#[tokio::test]
async fn list_reads_only_the_end_of_each_session() {
    let log = Arc::new(Unsteady::default());
    let mut session = long_session(log.clone()).await;
    take_read(&log);
    let listed = list_sessions(&*log).await.unwrap().remove(0);
    assert!(take_read(&log) <= 16);
    assert_eq!((listed.turns, listed.turn_open), (TURNS as usize, false));
    assert_eq!(listed.last_stop_reason, Some(StopReason::Completed));
    assert_eq!(listed.active_at, Some(at()));

    session.append(vec![turn_started(TURNS + 1)]).await.unwrap();
    let listed = list_sessions(&*log).await.unwrap().remove(0);
    assert!(take_read(&log) <= 32);
    assert_eq!((listed.turns, listed.turn_open), (TURNS as usize + 1, true));
    assert_eq!(listed.last_stop_reason, Some(StopReason::Completed));
}

/// Each part of the search is several times as long as the previous part. So the total number of read records is
/// proportional to the distance of the found record from the end.
#[tokio::test]
async fn list_finds_an_end_far_back_in_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteLog::open(folder.path().join("store.db")).await;
    let stores: [Arc<dyn Log>; 2] = [Arc::new(MemoryLog::new()), Arc::new(sqlite.unwrap())];
    for log in stores {
        let created = SessionWriter::create(log.clone(), "s".into(), at(), "/work", None).await;
        let mut session = created.unwrap();
        run_turn(&mut session, 1).await;
        session.append(vec![turn_started(2)]).await.unwrap();
        for many in [1, 200, 2_000] {
            let works = (0..many).map(|n| background_started(many * 10 + n));
            session.append(works.collect()).await.unwrap();
            let listed = list_sessions(&*log).await.unwrap().remove(0);
            assert_eq!((listed.turns, listed.turn_open), (2, true));
            assert_eq!(listed.last_stop_reason, Some(StopReason::Completed));
        }
    }
}

/// Compares all parts of the state that later records depend on.
fn check_same_end(of_the_end: &SessionState, of_all: &SessionState) {
    assert_eq!(of_the_end.conversation(), of_all.conversation());
    assert_eq!(of_the_end.metered(), of_all.metered());
    assert_eq!(of_the_end.next_turn(), of_all.next_turn());
    assert_eq!(of_the_end.turns().last(), of_all.turns().last());
    assert_eq!(of_the_end.open_turn(), of_all.open_turn());
    assert_eq!(of_the_end.session_id(), of_all.session_id());
    assert_eq!(of_the_end.opened_at(), of_all.opened_at());
    assert_eq!(of_the_end.folder(), of_all.folder());
    assert!(
        of_the_end
            .unreported_background()
            .eq(of_all.unreported_background())
    );
    assert_eq!(of_the_end.background().last(), of_all.background().last());
    let running = |state: &SessionState| -> Vec<BackgroundId> {
        let works = state.background().iter();
        let works = works.filter(|work| work.ended.is_none());
        works.map(|work| work.id.clone()).collect()
    };
    assert_eq!(running(of_the_end), running(of_all));
}

#[tokio::test]
async fn resumed_session_is_read_from_its_last_compaction() {
    let log = Arc::new(Unsteady::default());
    let mut session = long_session(log.clone()).await;
    session.append(vec![compacted(TURNS, 2)]).await.unwrap();
    let behind: [Vec<SessionRecord>; 4] = [
        vec![],
        whole_turn(TURNS + 1),
        vec![turn_started(TURNS + 2), model_call_started(TURNS + 2)],
        vec![],
    ];
    for records in behind {
        session.append(records).await.unwrap();
        drop(session);
        take_read(&log);
        let resumed = SessionWriter::resume(log.clone(), "s".into(), at()).await;
        session = resumed.unwrap();
        assert!(take_read(&log) <= 48);
        let (all, _) = read_session(&*log, &"s".into()).await.unwrap();
        check_same_end(session.state(), &all);
        let (end, _) = read_session_end(&*log, &"s".into()).await.unwrap();
        assert_eq!(&end, session.state());
    }
    assert_eq!(session.state().next_turn(), TurnNumber(TURNS + 3));

    // A turn from before the compaction can still be undone if the state contains all of the turn's messages.
    for turn in [TURNS + 1, TURNS, TURNS - 1] {
        let (turn, at) = (TurnNumber(turn), at());
        let undone = SessionRecord::TurnUndone { turn, at };
        session.append(vec![undone]).await.unwrap();
    }
    let (all, _) = read_session(&*log, &"s".into()).await.unwrap();
    assert_eq!(session.state().conversation(), all.conversation());
    assert_eq!(all.conversation().messages.len(), 1, "the summary");
}

/// Older versions of Allstop write compactions without a snapshot. An older version may also continue a session in which
/// a newer version has written a compaction with a snapshot.
#[tokio::test]
async fn records_of_older_versions_are_read_in_full() {
    let log = Arc::new(Unsteady::default());
    let mut session = long_session(log.clone()).await;
    let write_as_before = async |version: Version, records: Vec<SessionRecord>| {
        let encoded = records.iter().map(|record| {
            let mut bytes = Vec::new();
            encode(record, &mut bytes);
            bytes.into()
        });
        let id = AppendId(u128::from(version.0));
        let (stream, encoded) = (stream_of(&"s".into()), encoded.collect());
        log.append(&stream, version, id, encoded).await.unwrap()
    };
    let version = session.version();
    drop(session);
    let version = write_as_before(version, vec![compacted(TURNS, 2)]).await;
    let resumed = SessionWriter::resume(log.clone(), "s".into(), at()).await;
    session = resumed.unwrap();
    assert_eq!(session.version(), version);
    assert_eq!(session.state().turns().len(), TURNS as usize);

    // The second compaction drops three messages: the summary of the first compaction, and two messages that the first
    // compaction kept.
    let again = SessionRecord::Compacted {
        at: at(),
        messages_dropped: 3,
        turns_dropped: 1,
        summary: None,
        usage: Usage::default(),
    };
    session.append(vec![again]).await.unwrap();
    let version = session.version();
    drop(session);
    write_as_before(version, whole_turn(TURNS + 1)).await;
    let (end, _) = read_session_end(&*log, &"s".into()).await.unwrap();
    let (all, _) = read_session(&*log, &"s".into()).await.unwrap();
    assert_eq!(end, all);
}
