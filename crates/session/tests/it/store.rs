//! A store that fails: the receipt of a stop claims only the facts that the log has confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_agent::{Settings, TurnError, TurnErrorKind};
use allstop_core::receipt::ConversationEffect;
use allstop_core::turn::StopPolicy;
use allstop_log::{Log, MemoryLog};
use allstop_model::{Pause, Reply};
use allstop_scope::{RootOptions, Scope};
use allstop_session::{
    AgentRequest, AgentSource, SessionAgent, SessionOptions, Sessions, StopTarget, UndoError,
};
use allstop_testkit::{FaultyLog, LogFault};
use futures::future::BoxFuture;

use crate::support::{agent, fixture, in_order, text_delta, user};

async fn stopped_with(fault: LogFault) -> ConversationEffect {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let root = Scope::root("test", RootOptions::single_runtime());
    let keep = Settings::default().stop_policy(StopPolicy::Keep);
    let model = in_order(vec![Reply::text("some words").pause(Pause::Forever)]);
    let sessions = Sessions::new(
        Arc::clone(&log) as Arc<dyn Log>,
        root,
        Arc::new(agent(&model).settings(keep).build()),
        SessionOptions::default(),
    );
    let session = sessions.create(Some("s1".into()), "/tmp").await;
    let session = session.expect("a new session");
    let mut events = session.subscribe(None);
    let _sent = session.send("go").expect("nothing runs");
    text_delta(&mut events).await;
    log.fail_at("turn_stopped", fault);
    let stopping = session.stop(&StopTarget::Turn, user());
    let now = stopping.account_now();
    assert_eq!(now.conversation(), ConversationEffect::Unknown);
    stopping.receipt().await.conversation()
}

#[tokio::test(start_paused = true)]
async fn receipt_claims_only_confirmed_effects() {
    use ConversationEffect::Unknown;
    // The log already contains messages that the next start of the session keeps.
    assert_eq!(stopped_with(LogFault::Refuse).await, Unknown);
    assert_eq!(stopped_with(LogFault::Hold).await, Unknown);
}

/// A source that fails once and then never answers.
#[derive(Debug, Default)]
struct SilentSource(AtomicBool);

impl AgentSource for SilentSource {
    fn agent(&self, _request: AgentRequest) -> BoxFuture<'_, Result<SessionAgent, TurnError>> {
        Box::pin(async move {
            if self.0.swap(true, Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Err(TurnError::bug("on purpose"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn command_without_an_answer_is_a_store_failure() {
    let fixture = fixture(SilentSource::default(), SessionOptions::default()).await;
    let Err(UndoError::NotOpen(error)) = fixture.session.undo().await else {
        panic!("the session is not open")
    };
    assert_eq!(error.kind, TurnErrorKind::Store, "{error}");
    let receipt = fixture.session.close().await;
    assert!(receipt.quiet(), "{receipt:?}");
}
