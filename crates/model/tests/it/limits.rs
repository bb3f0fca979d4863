//! Time limits for tokens, and decisions about retries.

use std::time::Duration;

use allstop_model::scripted::Pause;
use allstop_model::{
    Model, ModelError, ModelErrorKind, ModelEvent, Reply, RetryPolicy, ScriptedModel, TokenLimits,
    stream_within,
};
use futures::StreamExt;
use tokio::time::Instant;

use crate::openai_server::{OpenAiServer, ServerAnswer};
use crate::support::{PATIENCE, ask, model_at};

const SECOND: Duration = Duration::from_secs(1);

fn limits(first: u64, between: u64) -> TokenLimits {
    TokenLimits::default()
        .first_token(Duration::from_secs(first))
        .between_tokens(Duration::from_secs(between))
}

async fn run(reply: Reply, limits: TokenLimits) -> (usize, Option<ModelError>, Duration) {
    let began = Instant::now();
    let model = ScriptedModel::new(vec![reply]);
    let mut events = 0;
    let mut stream = match stream_within(&model, ask("hi"), limits).await {
        Ok(stream) => stream,
        Err(error) => return (events, Some(error), began.elapsed()),
    };
    while let Some(event) = stream.events.next().await {
        match event {
            Ok(_) => events += 1,
            Err(error) => {
                assert!(stream.events.next().await.is_none());
                return (events, Some(error), began.elapsed());
            }
        }
    }
    (events, None, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn silent_provider_is_a_provider_timeout() {
    for reply in [
        Reply::text("x").stalling_at_connect(Pause::Forever),
        Reply::default().pause(Pause::Forever),
    ] {
        let (events, error, after) = run(reply, limits(3, 1)).await;
        assert_eq!(
            (events, error.unwrap().kind),
            (0, ModelErrorKind::ProviderTimeout)
        );
        assert_eq!(after, 3 * SECOND);
    }
    let (events, error, after) = run(Reply::text("one").pause(Pause::Forever), limits(3, 1)).await;
    let error = error.unwrap();
    assert_eq!((events, error.kind), (1, ModelErrorKind::ProviderTimeout));
    assert!(
        error.message.contains("no further token within 1s"),
        "{error}"
    );
    assert_eq!(after, SECOND);
}

#[tokio::test(start_paused = true)]
async fn slow_provider_within_the_limits_succeeds() {
    let slow = Reply::default()
        .pause(Pause::For(2 * SECOND))
        .and_text("one")
        .pause(Pause::For(SECOND / 2))
        .and_text("two");
    let (events, error, _) = run(slow.clone(), limits(3, 1)).await;
    assert_eq!((events, error), (3, None));
    let (events, error, _) = run(slow, TokenLimits::default()).await;
    assert_eq!((events, error), (3, None));
}

#[tokio::test]
async fn exceeded_limit_closes_the_connection() {
    let server = OpenAiServer::start([ServerAnswer::text("one").stall()]);
    let model = model_at(&server.url());
    let limits = TokenLimits::default().between_tokens(Duration::from_millis(20));
    let mut stream = stream_within(&model, ask("hi"), limits).await.unwrap();
    assert_eq!(
        stream.events.next().await.unwrap().unwrap(),
        ModelEvent::Text("one".into())
    );
    let error = stream.events.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::ProviderTimeout);
    // The test still holds the stream, so the limit itself has closed the connection.
    server
        .wait_until(PATIENCE, |seen| seen.open() == 0)
        .await
        .unwrap();
    drop(stream);
}

#[test]
fn delays_double_up_to_a_limit_and_obey_the_provider() {
    let policy = RetryPolicy::default().attempts_max(10);
    let down = ModelError::new(ModelErrorKind::Unavailable, "down");
    let delay = |attempt, error: &ModelError| {
        policy
            .next_delay(attempt, error, None)
            .map(|delay| delay.as_millis())
    };
    let delays: Vec<_> = (1..=10).map(|attempt| delay(attempt, &down)).collect();
    let expected = [500, 1000, 2000, 4000, 8000, 8000, 8000, 8000, 8000].map(Some);
    assert_eq!(delays[..9], expected);
    assert_eq!(delays[9], None, "the tenth attempt was the last");

    let asks = |wait: u64| {
        down.clone()
            .with_retry_after(Some(Duration::from_secs(wait)))
    };
    assert_eq!(delay(1, &asks(3)), Some(3000));
    assert_eq!(
        delay(3, &asks(0)),
        Some(2000),
        "our own delay is the minimum"
    );
    assert_eq!(delay(1, &asks(61)), None, "the wait is too long");
    assert_eq!(policy.next_delay(u32::MAX - 1, &down, None), None);
}

#[test]
fn delay_beyond_the_deadline_is_not_started() {
    let policy = RetryPolicy::default();
    let down = ModelError::new(ModelErrorKind::Disconnected, "cut");
    assert!(policy.next_delay(1, &down, Some(SECOND)).is_some());
    assert_eq!(
        policy.next_delay(1, &down, Some(Duration::from_millis(500))),
        None
    );
    assert_eq!(policy.next_delay(1, &down, Some(Duration::ZERO)), None);
}

#[test]
fn only_transient_errors_are_retried() {
    let policy = RetryPolicy::default();
    for (kind, again) in [
        (ModelErrorKind::Connect, true),
        (ModelErrorKind::ConnectTimeout, true),
        (ModelErrorKind::ProviderTimeout, true),
        (ModelErrorKind::RateLimited, true),
        (ModelErrorKind::Unavailable, true),
        (ModelErrorKind::Disconnected, true),
        (ModelErrorKind::Unauthorized, false),
        (ModelErrorKind::NotFound, false),
        (ModelErrorKind::Invalid, false),
        (ModelErrorKind::Protocol, false),
        (ModelErrorKind::Script, false),
    ] {
        let error = ModelError::new(kind, "x");
        assert_eq!(
            policy.next_delay(1, &error, None).is_some(),
            again,
            "{kind:?}"
        );
        assert_eq!(RetryPolicy::never().next_delay(1, &error, None), None);
    }
}

#[tokio::test]
async fn dropping_a_limited_stream_drops_the_inner_stream() {
    let server = OpenAiServer::start([ServerAnswer::text("one").stall()]);
    let model = model_at(&server.url());
    let request = ask("hi");
    let probe = request.probe.clone();
    let stream = stream_within(&model, request, limits(60, 60))
        .await
        .unwrap();
    drop(stream);
    assert_eq!(
        probe.closed(PATIENCE).await,
        allstop_model::ConnectionState::Closed
    );
    assert_eq!(model.name(), "some::model-high");
}
