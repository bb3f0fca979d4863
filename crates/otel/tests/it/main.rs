//! A program with the library exports the spans of a stopped run, and learns of lost spans.

mod file;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use allstop_agent::Agent;
use allstop_core::CauseKind;
use allstop_model::{Pause, Reply, from_fn};
use allstop_otel::{LostSpans, TraceExporter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Limit of a wait for a fact.
const FACT_MAX: Duration = Duration::from_secs(30);

/// Starts a collector that answers each export with this status line. Returns its URL and the bodies of the exports. The
/// thread of the collector ends with the process.
fn collector(status: &'static str) -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (bodies, received) = channel();
    #[expect(clippy::disallowed_methods, reason = "a server of a test")]
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            while let Some(body) = export(&mut stream, status) {
                // The test may already have ended.
                let _sent = bodies.send(body);
            }
        }
    });
    (url, received)
}

/// Reads one export and answers it; `None` at the end of the connection.
fn export(stream: &mut BufReader<TcpStream>, status: &str) -> Option<Vec<u8>> {
    let mut len = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.get_mut().write_all(answer.as_bytes()).ok()?;
    Some(body)
}

#[tokio::test]
async fn stopped_run_is_exported_with_its_receipt() {
    let (url, bodies) = collector("200 OK");
    let (sender, losses) = channel::<LostSpans>();
    let traces = TraceExporter::new(&url, move |spans| drop(sender.send(spans.clone())));
    let traces = traces.expect("a valid URL");
    registry().with(traces.layer()).init();

    let model = from_fn("test", async |_| Ok(Reply::text("").pause(Pause::Forever)));
    let agent = Agent::new(model).name("reviewer").spans(traces.links());
    let run = agent.build().run("a secret prompt");
    let receipt = run.stop(CauseKind::User).await;
    assert!(receipt.quiet(), "{receipt}");
    run.await.into_result().unwrap_err();

    traces.close(FACT_MAX);
    let exported = String::from_utf8_lossy(&bodies.recv_timeout(FACT_MAX).unwrap()).into_owned();
    for text in ["invoke_agent reviewer", "allstop.stop.cause", "user"] {
        assert!(exported.contains(text), "{text} is missing in {exported}");
    }
    assert!(!exported.contains("secret"), "{exported}");
    assert!(losses.try_recv().is_err(), "no span was lost");
}

#[test]
fn refused_spans_are_reported_once() {
    let (url, bodies) = collector("400 Bad Request");
    let (sender, losses) = channel::<LostSpans>();
    let traces = TraceExporter::new(&url, move |spans| drop(sender.send(spans.clone())));
    let traces = traces.expect("a valid URL");
    tracing::subscriber::with_default(registry().with(traces.layer()), || {
        drop(tracing::info_span!(target: "allstop_agent", "turn"));
        drop(tracing::info_span!(target: "another_crate", "not exported"));
    });
    traces.close(FACT_MAX);
    bodies.recv_timeout(FACT_MAX).expect("an export");
    let loss = losses.recv_timeout(FACT_MAX).expect("a report");
    assert_eq!((loss.count, &loss.collector), (1, &url));
    let text = loss.to_string();
    let begin = format!("traces are incomplete: 1 span was not sent to {url}: ");
    assert!(text.starts_with(&begin), "{text}");
    assert!(losses.try_recv().is_err(), "a second report");
}

#[test]
fn invalid_url_is_an_error_with_the_url() {
    let error = TraceExporter::new("not a url", |_| ()).expect_err("an invalid URL");
    assert!(error.to_string().contains("not a url"), "{error}");
}

/// Regression: the report was `no answer in time`, because the SDK was repeating the request at the end.
#[test]
fn refused_connection_is_reported_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    for max in [Duration::from_millis(500), FACT_MAX] {
        let (sender, losses) = channel::<LostSpans>();
        let traces = TraceExporter::new(&url, move |spans| drop(sender.send(spans.clone())));
        let traces = traces.expect("a valid URL");
        tracing::subscriber::with_default(registry().with(traces.layer()), || {
            drop(tracing::info_span!(target: "allstop_agent", "turn"));
        });
        traces.close(max);
        let loss = losses.recv_timeout(FACT_MAX).expect("a report");
        assert!(loss.why.starts_with("Connection refused"), "{loss}");
    }
}
