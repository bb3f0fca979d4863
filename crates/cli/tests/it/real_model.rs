//! Tests with a real model, served by llama.cpp.

use allstop_testkit::llama::LlamaServer;

use crate::support::{Place, Signal};

fn run<'a>(place: &'a Place, server: &LlamaServer) -> crate::support::Allstop<'a> {
    let run = place.run().args("--base-url").arg(server.base_url());
    run.arg("--model").arg(LlamaServer::MODEL)
}

#[test]
fn it_answers_and_the_answer_is_counted() {
    let server = LlamaServer::start();
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

#[test]
fn it_goes_on_with_a_session_in_which_tools_were_used() {
    let server = LlamaServer::start();
    let place = Place::new();
    let script = "replies: [{text: Let me see., calls: [{tool: shell, arguments: {command: echo 42}}]}, {text: It is 42.}]";
    let scripted = place
        .run_script(script)
        .args("--json")
        .arg("What is it?")
        .end()
        .ok();
    let config = place.file("allstop.toml", "[model]\nmax_output_tokens = 16\n");
    let run = run(&place, &server).arg("--config").arg(config);
    let run = run.arg("--session").arg(scripted.session());
    let ended = run.args("--json").arg("Say it again.").end().ok();
    let envelope = ended.envelope();
    assert_eq!(envelope["turn"], 2, "{envelope:#}");
    assert_ne!(envelope["output"], "", "{envelope:#}");
}

/// This test measures time, so it runs alone.
mod alone {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn ctrl_c_in_mid_stream_leaves_the_server_idle_at_once() {
        /// Maximum time that the server may continue to compute after the stop. On a busy machine, the server may wait
        /// for a processor before it notices the closed connection.
        const BUSY_MAX: Duration = Duration::from_millis(100);
        let server = LlamaServer::start();
        let place = Place::new();
        let run = run(&place, &server).args("--stream-json");
        let mut running = run
            .arg("Write a very long story about a dragon, in twenty chapters.")
            .start();
        running.wait_stdout("text_delta");
        let busy = server
            .idle_after(Duration::from_millis(60))
            .await
            .expect("look");
        assert_eq!(
            busy, None,
            "while it streams, it must not look idle: {running:#?}"
        );

        let before = server.cpu_time().expect("look");
        running.signal(Signal::INT);
        let idle = server.idle_after(Duration::from_secs(5)).await;
        let idle = idle.expect("look").expect("it becomes idle");
        let computed = server.cpu_time().expect("look").saturating_sub(before);
        let ended = running.end(crate::support::FACT_MAX);
        println!("idle {idle:?} after Ctrl-C, having computed for {computed:?}");
        assert_eq!(ended.code, 130, "{ended:#?}");
        let lines = ended.lines();
        let item = &lines[lines.len() - 1]["receipt"]["items"][0];
        assert_eq!(item["how"], "connection_closed", "{item:#}");
        assert_eq!(item["verified"], "socket_closed", "{item:#}");
        assert!(computed < BUSY_MAX, "{computed:?} in {idle:?}");
    }
}
