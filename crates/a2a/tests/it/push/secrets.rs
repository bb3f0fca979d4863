//! Signatures, and output that must not contain secrets.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use allstop_a2a::PushSecret;
use parking_lot::Mutex;
use serde_json::json;

use super::receiver::{HookAnswer, Receiver};
use super::rig::{Rig, quick};
use crate::support::answer;

/// Returns the Python code in docs/serve.md that verifies a delivery.
fn documented_receiver() -> String {
    let docs = include_str!("../../../../../docs/serve.md");
    let (_, rest) = docs.split_once("```python\n").expect("a snippet");
    let (code, _) = rest.split_once("```").expect("its end");
    code.to_owned()
}

/// Runs the documented code, which defines `verify(headers, body, key)`.
fn verifies(headers: &serde_json::Value, body: &str, secret: &[u8], user: &str) -> bool {
    let code = documented_receiver();
    let main = "\nimport json, sys\ngiven = json.load(sys.stdin)\n\
                key = user_key(bytes.fromhex(given['secret']), given['user'])\n\
                print(verify(given['headers'], given['body'].encode(), key))\n";
    let hex: String = secret
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let given = json!({"headers": headers, "body": body, "secret": hex, "user": user});
    let mut python = Command::new("python3")
        .args(["-c", &format!("{code}{main}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there: CONTRIBUTING.md names it");
    let mut input = python.stdin.take().expect("piped");
    input
        .write_all(given.to_string().as_bytes())
        .expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    match output.stdout.trim_ascii() {
        b"True" => true,
        b"False" => false,
        _ => panic!("{output:?}"),
    }
}

#[tokio::test]
async fn documented_receiver_verifies_a_delivery() {
    let secret = b"0123456789abcdef0123456789abcdef";
    let hook = Receiver::start().await;
    let rig = Rig::start(quick().secret(PushSecret::new(secret).unwrap())).await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    for event in hook.wait_for(3).await {
        let headers: serde_json::Map<_, _> = event
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap())))
            .collect();
        let (headers, body) = (
            json!(headers),
            String::from_utf8(event.body.to_vec()).unwrap(),
        );
        assert!(verifies(&headers, &body, secret, "alice"));
        // Another body, another user, another secret, another event, and another time.
        assert!(!verifies(&headers, &format!("{body} "), secret, "alice"));
        assert!(!verifies(&headers, &body, secret, "bob"));
        assert!(!verifies(
            &headers,
            &body,
            b"another secret of 32 bytes or so",
            "alice"
        ));
        let mut other = headers.clone();
        other["webhook-id"] = json!("evt_0");
        assert!(!verifies(&other, &body, secret, "alice"));
        let mut other = headers.clone();
        other["webhook-timestamp"] = json!("1700000000");
        assert!(!verifies(&other, &body, secret, "alice"));
    }
}

#[test]
fn short_secret_is_refused() {
    assert!(PushSecret::new(&[1; 31]).is_err());
    let secret = PushSecret::new(b"secret-secret-secret-secret-secret").unwrap();
    assert!(!format!("{secret:?}").contains("secret-"));
}

#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Covers all log messages of the deliveries, at every level: failures, a pause, and a deletion.
#[tokio::test]
async fn no_secret_is_logged() {
    let text = LogText::default();
    let writer = text.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::start(
        quick()
            .failing_max(std::time::Duration::from_millis(20))
            .secret(PushSecret::new(b"server-secret-server-secret-server").unwrap()),
    )
    .await;
    let broken = Receiver::answering(|_| HookAnswer::Status(500)).await;
    let gone = Receiver::answering(|_| HookAnswer::Status(410)).await;
    let closed = Receiver::start().await;
    let refused = closed.url();
    closed.close().await;
    for url in [broken.url(), gone.url(), refused] {
        let webhook = json!({
            "url": format!("{url}/path-secret?q=query-secret"), "token": "token-secret",
            "authentication": {"scheme": "Bearer", "credentials": "credentials-secret"},
        });
        rig.send("echo", &webhook).await;
    }
    rig.active(0).await;
    // The error for a refused configuration does not contain its secrets either.
    let refused = crate::support::rpc(
        "CreateTaskPushNotificationConfig",
        &json!({"taskId": "none", "url": "http://127.0.0.1/path-secret", "token": "token-secret"}),
    );
    answer(&rig.router, refused).await;
    let debug = format!("{:?}", rig.push);
    let log = String::from_utf8(text.0.lock().clone()).unwrap();
    assert!(log.contains("push notifications are paused"), "{log}");
    assert!(log.contains("answered 410"), "{log}");
    for text in [log, debug] {
        assert!(!text.contains("-secret"), "{text}");
    }
}
