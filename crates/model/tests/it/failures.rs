//! Failures of a provider: the kind, a one-line message, a hint, and no secret.

use std::time::Duration;

use allstop_model::{AnswerLimits, ModelError, ModelErrorKind, ProviderModel, ProviderOptions};
use serde_json::json;

use crate::openai_server::{OpenAiServer, ServerAnswer};
use crate::support::{PATIENCE, all_of, ask, failure_of, model_at, text_of};

#[track_caller]
fn check(error: &ModelError, kind: ModelErrorKind, part: &str) {
    assert_eq!(error.kind, kind, "{error:?}");
    assert!(error.message.contains(part), "{part:?} is not in {error:?}");
    assert!(!error.message.contains('\n'), "{error:?}");
    assert!(error.message.chars().count() <= 301, "{error:?}");
    assert!(
        error.hint.as_ref().is_none_or(|hint| !hint.contains('\n')),
        "{error:?}"
    );
}

#[tokio::test]
async fn statuses_have_kinds_and_hints() {
    let error = failure_of(ServerAnswer::status(429).header("retry-after", "7")).await;
    check(&error, ModelErrorKind::RateLimited, "429");
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    assert!(error.hint.unwrap().contains("7 s"));

    let ms = ServerAnswer::status(503)
        .header("retry-after", "9")
        .header("retry-after-ms", "1500");
    let error = failure_of(ms).await;
    check(&error, ModelErrorKind::Unavailable, "503");
    assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));

    let date = ServerAnswer::status(429).header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT");
    assert_eq!(failure_of(date).await.retry_after, Some(Duration::ZERO));
    for nonsense in ["-5", "soon", "NaN", "1e300", ""] {
        let error = failure_of(ServerAnswer::status(429).header("retry-after", nonsense)).await;
        check(&error, ModelErrorKind::RateLimited, "429");
        assert_eq!(error.retry_after, None, "{nonsense}");
    }

    check(
        &failure_of(ServerAnswer::status(500)).await,
        ModelErrorKind::Unavailable,
        "500",
    );
    check(
        &failure_of(ServerAnswer::status(529)).await,
        ModelErrorKind::Unavailable,
        "529",
    );
    check(
        &failure_of(ServerAnswer::status(400)).await,
        ModelErrorKind::Invalid,
        "400",
    );
    let redirect = ServerAnswer::status(302).header("location", "http://127.0.0.1:1/");
    check(&failure_of(redirect).await, ModelErrorKind::Protocol, "302");
}

#[tokio::test]
async fn hint_for_a_401_names_the_source_of_the_key() {
    let hint = async |url: &dyn Fn(&str) -> String, key: Option<&str>| {
        let server = OpenAiServer::start([ServerAnswer::status(401)]);
        let options = ProviderOptions::default()
            .base_url(url(&server.url()))
            .key(key.map(str::to_owned));
        let model = ProviderModel::new("m", options).unwrap();
        let error = all_of(&model, ask("hi")).await.1.unwrap();
        check(&error, ModelErrorKind::Unauthorized, "401");
        error.hint.unwrap()
    };
    let plain = |url: &str| url.to_owned();
    let with_password = |url: &str| url.replace("http://", "http://me:hunter2@");
    let without_key = hint(&plain, None).await;
    assert!(without_key.contains("no key was sent"), "{without_key}");
    assert!(without_key.contains("`api_key_env`"), "{without_key}");
    let with_key = hint(&plain, Some("sk-1")).await;
    assert!(with_key.starts_with("check the key in"), "{with_key}");
    let in_url = hint(&with_password, None).await;
    assert!(in_url.contains("password in the base URL"), "{in_url}");
}

#[tokio::test]
async fn limits_on_an_answer_are_options_and_errors_name_them() {
    let limited = |answer_bytes_max, event_bytes_max| {
        AnswerLimits::default()
            .answer_bytes_max(answer_bytes_max)
            .event_bytes_max(event_bytes_max)
    };
    let text = "x".repeat(1_500);
    for (limits, expected) in [
        (limited(1_500, 4_096), None),
        (
            limited(1_024, 4_096),
            Some(("1 KiB in the answer", "`answer_bytes_max`")),
        ),
        (
            limited(4_096, 1_100),
            Some(("1100 bytes in one event", "`event_bytes_max`")),
        ),
    ] {
        let server = OpenAiServer::start([ServerAnswer::text(&text)]);
        let options = ProviderOptions::default()
            .base_url(server.url())
            .answer_limits(limits);
        let model = ProviderModel::new("m", options).unwrap();
        let error = all_of(&model, ask("hi")).await.1;
        match expected {
            None => assert!(error.is_none(), "{error:?}"),
            Some((said, key)) => {
                let error = error.expect("an error");
                check(&error, ModelErrorKind::Protocol, said);
                assert!(error.hint.as_ref().unwrap().contains(key), "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn empty_answer_is_a_transient_error() {
    let finish = |reason: &str| {
        let choice = json!({"index": 0, "delta": {}, "finish_reason": reason});
        json!({"choices": [choice]}).to_string()
    };
    for answer in [
        ServerAnswer::stream(),
        ServerAnswer::stream().event(&json!({"choices": []}).to_string()),
        ServerAnswer::stream().chunk(""),
    ] {
        let error = failure_of(answer.event("[DONE]")).await;
        check(&error, ModelErrorKind::Disconnected, "sent an empty answer");
        assert!(error.kind.is_transient());
    }
    let answer = ServerAnswer::stream()
        .event(&finish("stop"))
        .event("[DONE]");
    let server = OpenAiServer::start([answer]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(
        error, None,
        "a finish reason makes an empty answer complete"
    );
    assert_eq!(text_of(&events), "");
}

#[tokio::test]
async fn account_without_quota_is_not_retried() {
    let body =
        json!({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}});
    let error = failure_of(ServerAnswer::page(
        429,
        "application/json",
        body.to_string(),
    ))
    .await;
    check(&error, ModelErrorKind::Unauthorized, "exceeded your quota");
    assert!(!error.kind.is_transient());
}

#[tokio::test]
async fn error_with_status_200_quotes_the_server() {
    let page = |body: &str| ServerAnswer::page(200, "application/json", body);
    let quota =
        json!({"error": {"message": "no credit", "code": 402, "type": "billing_not_active"}});
    let error = failure_of(page(&quota.to_string())).await;
    check(
        &error,
        ModelErrorKind::Unavailable,
        "answered with an error: no credit",
    );

    let key = json!({"error": {"message": "bad key", "code": 401}}).to_string();
    check(
        &failure_of(page(&key)).await,
        ModelErrorKind::Unauthorized,
        "bad key",
    );
    let word = json!({"error": "model is loading"}).to_string();
    check(
        &failure_of(page(&word)).await,
        ModelErrorKind::Unavailable,
        "model is loading",
    );
    let text = failure_of(page("upstream is away")).await;
    check(
        &text,
        ModelErrorKind::Protocol,
        "not an event stream: upstream is away",
    );
}

#[tokio::test]
async fn error_names_the_unknown_model() {
    let body = json!({"error": {"message": "model 'x' not found"}}).to_string();
    let error = failure_of(ServerAnswer::page(404, "application/json", body)).await;
    check(&error, ModelErrorKind::NotFound, "some::model-high");
    assert!(error.hint.unwrap().contains("name"));
}

#[tokio::test]
async fn web_page_instead_of_an_answer_is_a_protocol_error() {
    let error = failure_of(ServerAnswer::html()).await;
    check(&error, ModelErrorKind::Protocol, "not an event stream");
    assert!(error.hint.unwrap().contains("/v1"));

    let page = ServerAnswer::page(404, "text/html", "<html>nginx</html>");
    check(
        &failure_of(page).await,
        ModelErrorKind::Protocol,
        "web page",
    );
    let page = ServerAnswer::page(502, "text/html", "<html>nginx</html>");
    check(&failure_of(page).await, ModelErrorKind::Unavailable, "502");
    let json = ServerAnswer::page(200, "application/json", r#"{"hello": "world"}"#);
    check(
        &failure_of(json).await,
        ModelErrorKind::Protocol,
        "not an event stream",
    );
}

#[tokio::test]
async fn cut_stream_is_a_disconnect() {
    for answer in [
        ServerAnswer::text("one two").cut(),
        ServerAnswer::text("one two").end_without_marker(),
        // These streams are cut off in the middle of an event, or in the middle of a character.
        ServerAnswer::text("one")
            .raw("data: {\"choices\":[{\"index\":0,\"del")
            .cut(),
        ServerAnswer::text("one")
            .raw("data: {\"choices\":[{\"index\":0,\"del")
            .end_without_marker(),
        ServerAnswer::text("one")
            .raw(b"data: {\"choices\":[{\"delta\":{\"content\":\"\xc3".to_vec())
            .cut(),
        ServerAnswer::stream().cut(),
        ServerAnswer::stream().end_without_marker(),
    ] {
        let shown = format!("{answer:?}");
        let error = failure_of(answer).await;
        assert_eq!(
            error.kind,
            ModelErrorKind::Disconnected,
            "{shown}: {error:?}"
        );
        check(
            &error,
            ModelErrorKind::Disconnected,
            "before the answer was complete",
        );
    }
}

#[tokio::test]
async fn garbage_is_a_protocol_error() {
    for answer in [
        ServerAnswer::stream().event("this is no JSON"),
        ServerAnswer::text("one").event("{\"choices\": nonsense}"),
        ServerAnswer::stream()
            .raw(b"data: \xff\xfe\n\n".to_vec())
            .stall(),
    ] {
        let shown = format!("{answer:?}");
        let error = failure_of(answer).await;
        assert_eq!(error.kind, ModelErrorKind::Protocol, "{shown}: {error:?}");
    }
}

#[tokio::test]
async fn server_without_http_is_a_protocol_error() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
        socket
            .write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            .await
            .unwrap();
        std::future::pending::<()>().await;
    };
    let model = model_at(&url);
    let error = tokio::select! {
        () = serve => unreachable!(),
        (_, error) = all_of(&model, ask("hi")) => error.unwrap(),
    };
    check(&error, ModelErrorKind::Protocol, "not HTTP");
}

#[tokio::test]
async fn error_object_in_the_stream_has_a_kind() {
    let error = |code| json!({"error": {"message": "it broke", "code": code}}).to_string();
    let in_stream = async |data: String| failure_of(ServerAnswer::text("one").event(&data)).await;
    check(
        &in_stream(error(json!(500))).await,
        ModelErrorKind::Unavailable,
        "it broke",
    );
    check(
        &in_stream(error(json!("rate_limit_exceeded"))).await,
        ModelErrorKind::RateLimited,
        "it broke",
    );
    check(
        &in_stream(error(json!("context_length_exceeded"))).await,
        ModelErrorKind::ContextLength,
        "it broke",
    );
    check(
        &in_stream(error(json!(null))).await,
        ModelErrorKind::Unavailable,
        "it broke",
    );
    let plain = json!({"error": "just words"}).to_string();
    check(
        &in_stream(plain).await,
        ModelErrorKind::Unavailable,
        "just words",
    );
}

#[tokio::test]
async fn no_event_follows_an_error_object() {
    let data = json!({"error": {"message": "it broke"}}).to_string();
    let answer = ServerAnswer::text("one").event(&data).chunk(" two");
    let server = OpenAiServer::start([answer]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(error.is_some());
}

#[tokio::test]
async fn missing_server_is_a_refused_connection() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (_, error) = all_of(&model_at(&format!("http://{closed}")), ask("hi")).await;
    let error = error.unwrap();
    check(&error, ModelErrorKind::Connect, "refused");
    assert!(error.message.contains(&closed.to_string()));
    assert!(error.hint.unwrap().contains("running"));
}

#[tokio::test]
async fn secrets_are_never_repeated() {
    let key = "sk-very-secret-0123456789";
    let body =
        json!({"error": {"message": format!("Incorrect API key provided: {key}")}}).to_string();
    let server = OpenAiServer::start([ServerAnswer::page(401, "application/json", body)]);
    let address = server.address();
    let options = ProviderOptions::default()
        .base_url(format!("http://me:hunter2@{address}/v1?token=abc"))
        .key(key.to_owned());
    let shown_options = format!("{options:?}");
    let model = ProviderModel::new("m", options.clone()).unwrap();
    let (_, error) = all_of(&model, ask("hi")).await;
    let shown = format!("{error:?} {model:?} {shown_options}");
    drop(server);
    let (_, error) = tokio::time::timeout(PATIENCE, all_of(&model, ask("hi")))
        .await
        .expect("it ends");
    let shown = format!("{shown} {:?}", error.unwrap());
    for secret in [key, "hunter2", "abc"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn endless_error_text_becomes_one_short_line() {
    let page = ServerAnswer::page(400, "text/plain", "many\nlines\n".repeat(100_000));
    check(
        &failure_of(page).await,
        ModelErrorKind::Invalid,
        "many lines",
    );
}

/// A refused request that is too long for the model has its own kind, because a shorter request may succeed.
#[tokio::test]
async fn full_context_has_a_kind_and_a_remedy() {
    let body = json!({"error": {
        "message": "This model's maximum context length is 4096 tokens.",
        "code": "context_length_exceeded",
    }});
    let page = ServerAnswer::page(400, "application/json", body.to_string());
    let error = failure_of(page).await;
    check(&error, ModelErrorKind::ContextLength, "4096 tokens");
    assert!(error.hint.unwrap().contains("larger context window"));
}

/// A provider without answers by a schema. The remedy names the flag and the setting that ask for them.
#[tokio::test]
async fn refused_answer_format_has_a_remedy() {
    let body = json!({"error": {
        "message": "This response_format type is unavailable now",
        "type": "invalid_request_error",
        "code": "invalid_request_error",
    }});
    let page = ServerAnswer::page(400, "application/json", body.to_string());
    let error = failure_of(page).await;
    check(&error, ModelErrorKind::Invalid, "response_format type");
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("--output-schema") && hint.contains("provider_options"),
        "{hint}"
    );
}
