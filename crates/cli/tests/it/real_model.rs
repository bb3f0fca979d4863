//! A real model, served by llama.cpp.

use allstop_testkit::llama::LlamaServer;

use crate::support::{Place, Signal};

fn run<'a>(place: &'a Place, server: &LlamaServer) -> crate::support::Allstop<'a> {
    let run = place.run().args("--base-url").arg(server.base_url());
    run.arg("--model").arg(LlamaServer::MODEL)
}

#[test]
fn it_answers_and_the_answer_is_counted() {
    let server = LlamaServer::start().expect("the llama part");
    let place = Place::new();
    let config = place.file("allstop.toml", "[model]\nmax_output_tokens = 16\n");
    let run = run(&place, &server).arg("--config").arg(config);
    let ended = run.args("--stream-json").arg("Say hello.").end().ok();
    let lines = ended.lines();
    let deltas = lines
        .iter()
        .filter(|line| line["event"] == "text_delta")
        .count();
    assert!(deltas >= 2, "it streams: {ended:#?}");
    let envelope = lines.last().expect("an envelope");
    assert_ne!(envelope["output"], "");
    assert_eq!(envelope["usage"]["estimated"], false, "{envelope:#}");
}

/// Measures time, so it has the machine to itself.
mod alone {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn ctrl_c_in_mid_stream_leaves_the_server_idle_at_once() {
        const IDLE_MAX: Duration = Duration::from_millis(100);
        let server = LlamaServer::start().expect("the llama part");
        let place = Place::new();
        let run = run(&place, &server).args("--stream-json");
        let mut running = run.arg("Count from one to one thousand, in words.").start();
        running.wait_stdout("text_delta");
        let busy = server
            .idle_after(Duration::from_millis(100))
            .await
            .expect("look");
        assert_eq!(busy, None, "while it streams, it must not look idle");

        let begin = Instant::now();
        running.signal(Signal::INT);
        let idle = server
            .idle_after(Duration::from_secs(2))
            .await
            .expect("look");
        let idle = idle.expect("idle within two seconds");
        let ended = running.end(crate::support::FACT_MAX);
        println!(
            "idle {idle:?} after Ctrl-C, seen after {:?}",
            begin.elapsed()
        );
        assert_eq!(ended.code, 130, "{ended:#?}");
        let lines = ended.lines();
        let item = &lines[lines.len() - 1]["receipt"]["items"][0];
        assert_eq!(item["how"], "connection_closed", "{item:#}");
        assert_eq!(item["verified"], "socket_closed", "{item:#}");
        assert!(idle < IDLE_MAX, "idle only after {idle:?}");
    }
}
