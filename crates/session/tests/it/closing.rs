//! The end of a session, and requests after it.

use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use allstop_agent::{Agent, TurnError};
use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::NothingToStop;
use allstop_core::record::{Attachment, BackgroundKind, SessionRecord};
use allstop_core::{StopReason, Timestamp, TurnNumber};
use allstop_log::{MemoryLog, SessionError, SessionWriter, read_session};
use allstop_model::{Pause, Reply};
use allstop_process::this_process;
use allstop_scope::{RootOptions, Scope};
use allstop_session::{
    AgentRequest, AgentSource, FollowUp, MessageRefused, NewMessage, OpenError, SendError, Session,
    SessionAgent, SessionOptions, Sessions, StopTarget,
};
use allstop_testkit::{FaultyLog, LogFault};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, agent, fixture, in_order, text_delta, user};

/// A stop of the session ends the running turn, and ends all waiting messages at their start. Each message has exactly
/// one ending.
#[tokio::test(start_paused = true)]
async fn session_stop_ends_running_and_waiting_messages() {
    let model = in_order(vec![Reply::text("one").pause(Pause::Forever)]);
    let options = SessionOptions::default().follow_up(FollowUp::Enqueue);
    let fixture = fixture(agent(&model).build(), options).await;
    let mut events = fixture.session.subscribe(None);
    let first = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let second = fixture.session.send("second").unwrap();
    let receipt = fixture
        .session
        .stop(&StopTarget::Session, user())
        .receipt()
        .await;
    assert!(receipt.quiet() && receipt.cancel_observed(), "{receipt:?}");
    for sent in [first, second] {
        let outcome = sent.outcome().await;
        assert_eq!(outcome.stop_reason, StopReason::Cancelled);
        assert!(outcome.turn.is_some(), "each has its turn in the log");
    }
    let refused = fixture.session.send("third").unwrap_err();
    assert_eq!(refused, SendError::Refused(MessageRefused::Closed));
    assert_eq!(fixture.state().await.turns().len(), 2);

    let again = fixture.session.close().await;
    assert_eq!(again.outcome(), Some(NothingToStop::AlreadyEnded));
    let resumed = fixture
        .sessions
        .resume("s1".into())
        .await
        .expect("it can be opened again");
    let next = resumed.send("third").unwrap().outcome().await;
    assert_eq!(next.turn.unwrap().0, 3);
    resumed.close().await;
}

#[tokio::test(start_paused = true)]
async fn message_sent_as_stopped_ends_at_its_start() {
    let model = in_order(vec![Reply::text("never asked for")]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let message = NewMessage::from("one").stopped(Some(user()));
    let outcome = fixture.session.send(message).unwrap().outcome().await;
    assert_eq!(outcome.stop_reason, StopReason::Cancelled);
    assert_eq!(outcome.turn.unwrap().0, 1, "it has its turn in the log");
    assert_eq!(outcome.steps, 0);
    // The receipt belongs to the earlier stop, not to this message.
    assert!(outcome.receipt.is_none(), "{outcome:?}");
    assert_eq!(outcome.cause, Some(user()));
    // The next message begins.
    let next = fixture.session.send("two").unwrap().outcome().await;
    assert_eq!(&*next.output, "never asked for");
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn stops_of_unknown_and_ended_targets_are_answered() {
    let model = in_order(vec![Reply::text("one")]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let stop = async |target: StopTarget| {
        let receipt = fixture.session.stop(&target, user()).receipt().await;
        assert!(receipt.items().is_empty() && receipt.quiet());
        receipt.outcome().expect("nothing was stopped")
    };
    assert_eq!(stop(StopTarget::Turn).await, NothingToStop::NotFound);
    assert_eq!(
        stop(StopTarget::TurnAndBackground).await,
        NothingToStop::NotFound
    );
    assert_eq!(
        stop(StopTarget::Call("call_1".into())).await,
        NothingToStop::NotFound
    );
    assert_eq!(
        stop(StopTarget::Background("bg_1".into())).await,
        NothingToStop::NotFound
    );
    let sent = fixture.session.send("go").unwrap();
    sent.outcome().await;
    assert_eq!(stop(StopTarget::Turn).await, NothingToStop::AlreadyEnded);
    assert_eq!(
        stop(StopTarget::Message(sent.id)).await,
        NothingToStop::AlreadyEnded
    );
    // A late stop of a turn does not affect later turns.
    assert!(
        fixture
            .session
            .send("next")
            .unwrap()
            .outcome()
            .await
            .turn
            .is_some()
    );
    fixture.close().await;
}

/// A stop of the parent scope also covers sessions, and no new work begins.
#[tokio::test(start_paused = true)]
async fn process_stop_ends_the_session() {
    let model = in_order(vec![Reply::text("one").pause(Pause::Forever)]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    let sent = fixture.session.send("first").unwrap();
    text_delta(&mut events).await;
    let order = allstop_scope::StopRequest::new(allstop_core::Extent::Process, user());
    let receipt = fixture.root.stop(order).await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
    assert!(fixture.session.send("second").is_err());
    let refused = fixture.sessions.resume("s1".into()).await;
    assert!(matches!(refused, Err(OpenError::Stopped(_))));
    fixture.session.close().await;
    fixture.state().await;
}

/// Subscriptions end when no more events can follow, even if handles remain.
#[tokio::test(start_paused = true)]
async fn closed_session_ends_its_subscriptions() {
    let model = in_order(vec![Reply::text("one")]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let mut events = fixture.session.subscribe(None);
    fixture.session.send("go").unwrap().outcome().await;
    fixture.session.close().await;
    let end = async { while events.next().await.unwrap().is_some() {} };
    timeout(LONG, end).await.expect("it ends");
    let mut late = fixture.session.subscribe(None);
    assert!(late.next().await.unwrap().is_none());
}

/// A source that panics twice and then works.
#[derive(Debug)]
struct Troubled {
    agent: Agent,
    tries: AtomicU32,
}

impl AgentSource for Troubled {
    fn agent(&self, request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            match self.tries.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => panic!("on purpose"),
                _ => self.agent.agent(request).await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_the_agent_source_fails_only_the_message() {
    let model = in_order(vec![Reply::text("fine")]);
    let source = Troubled {
        agent: agent(&model).build(),
        tries: AtomicU32::new(0),
    };
    let fixture = fixture(source, SessionOptions::default()).await;
    let failed = fixture.session.send("one").unwrap().outcome().await;
    assert_eq!(failed.stop_reason, StopReason::Error);
    let next = fixture.session.send("two").unwrap().outcome().await;
    assert_eq!(&*next.output, "fine", "{next:?}");
    fixture.close().await;
}

/// Returns sessions. One of these sessions is resumed, and its log contains a command of a crashed process. The end of
/// that command is recorded while the session opens. `keeper` is the keeper of the command.
async fn resume_after_crash(
    log: &Arc<FaultyLog>,
    keeper: Option<ProcessIdentity>,
) -> (Scope, Sessions, Session) {
    let at = Timestamp::from_unix_ms(0);
    let crashed = SessionWriter::create(Arc::clone(log) as _, "s1".into(), at, "/tmp", None).await;
    let command = SessionRecord::BackgroundStarted {
        id: "bg_1".into(),
        turn: TurnNumber(1),
        call_id: "call_1".into(),
        name: "make".into(),
        kind: BackgroundKind::Shell,
        attachment: Attachment::Attached,
        process: None,
        keeper,
        marker: None,
        output: None,
    };
    let appended = crashed.expect("memory").append(vec![command]).await;
    appended.expect("memory");
    let root = Scope::root("test", RootOptions::single_runtime());
    let sessions = Sessions::new(
        Arc::clone(log) as _,
        root.clone(),
        Arc::new(agent(&in_order(Vec::new())).build()),
        SessionOptions::default(),
    );
    let session = sessions.resume("s1".into()).await;
    let session = session.expect("nobody has it open");
    (root, sessions, session)
}

/// Returns a session that is not open yet. The store has received an append and does not answer; the session opens only
/// after the store has answered.
async fn opening_session() -> (Arc<FaultyLog>, Sessions, Session) {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    log.fail_at("background_ended", LogFault::Hold);
    let (_root, sessions, session) = resume_after_crash(&log, None).await;
    log.reached().await;
    (log, sessions, session)
}

/// The lock is free when `close` returns, even if the session was closed before it was open.
#[tokio::test(start_paused = true)]
async fn session_closed_while_opening_can_be_resumed() {
    let (log, sessions, session) = opening_session().await;
    let store_answers = async {
        sleep(Duration::from_millis(500)).await;
        log.release().await;
    };
    let (receipt, ()) = tokio::join!(session.close(), store_answers);
    assert!(receipt.quiet(), "{receipt:?}");
    let (state, _) = read_session(&*log, &"s1".into()).await.unwrap();
    let mut works = state.background().iter();
    assert!(works.all(|work| work.ended.is_some()), "{state:?}");
    let resumed = sessions.resume("s1".into()).await;
    resumed.expect("nobody has it open").close().await;
}

/// A hanging store does not delay `close`; the lock is released when the store answers.
#[tokio::test(start_paused = true)]
async fn close_while_opening_does_not_wait_for_a_silent_store() {
    let (log, sessions, session) = opening_session().await;
    let began = Instant::now();
    let receipt = timeout(LONG, session.close()).await.expect("it ends");
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(began.elapsed() <= Duration::from_secs(2));
    let in_use = sessions.resume("s1".into()).await.map(drop);
    let Err(OpenError::Session(SessionError::InUse { .. })) = in_use else {
        panic!("the append may still be written: {in_use:?}")
    };
    log.release().await;
    let resumed = async {
        loop {
            match sessions.resume("s1".into()).await {
                Ok(resumed) => break resumed,
                Err(_in_use) => tokio::task::yield_now().await,
            }
        }
    };
    let resumed = timeout(LONG, resumed)
        .await
        .expect("the store has answered");
    resumed.close().await;
}

/// A stopped session does not wait until the keepers, small processes that supervise commands, have killed the work of
/// a crashed process. Uses real time, because the session reads `/proc`.
#[tokio::test]
async fn close_while_opening_does_not_wait_for_keepers() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    // A keeper that does not exit.
    let keeper = Some(this_process().clone());
    let (root, _sessions, session) = resume_after_crash(&log, keeper).await;
    let is_checking = async {
        while root.running().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, is_checking).await.expect("it checks");
    let began = Instant::now();
    session.close().await;
    assert!(began.elapsed() < Duration::from_millis(900));
}
