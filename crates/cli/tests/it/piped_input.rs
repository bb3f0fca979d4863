//! Piped input of a run with a prompt on the command line.

use std::io::Write as _;
use std::process::Stdio;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::{Allstop, Place, history};

fn asks<'a>(place: &'a Place, command: &str, prompt: &str, server: &OpenAiServer) -> Allstop<'a> {
    let command = place.allstop().args(command).arg(prompt).arg("--store");
    let command = command.arg(place.store()).args("--yes --model any");
    command.arg("--base-url").arg(server.url())
}

/// Regression: the input was dropped without a word.
#[test]
fn piped_input_becomes_part_of_the_prompt() {
    let place = Place::new();
    let file = place.file("notes", "line one\nline two\n");
    for command in ["run", "run --then=again", ""] {
        let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("Fine."));
        let input = std::fs::File::open(&file).expect("the file");
        let run = asks(&place, command, "explain this", &server);
        let ended = run.stdin(Stdio::from(input)).end().ok();
        let said = "standard input is part of the prompt: 18 bytes";
        assert!(ended.stderr.contains(said), "{ended:#?}");
        let requests = server.requests();
        let first = requests[0].messages().last().map(history::text_of);
        let expected = "explain this\n\n<stdin>\nline one\nline two\n</stdin>";
        assert_eq!(first.as_deref(), Some(expected), "{command}");
    }
    // `-` keeps its meaning, and an empty input adds nothing.
    for (input, prompt, expected) in [("all of it\n", "-", "all of it"), ("\n", "hello", "hello")] {
        let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("Fine."));
        let file = place.file("input", input);
        let input = std::fs::File::open(file).expect("the file");
        let run = asks(&place, "run", prompt, &server);
        run.stdin(Stdio::from(input)).end().ok();
        let said = server.requests()[0].messages().last().map(history::text_of);
        assert_eq!(said.as_deref().map(str::trim), Some(expected));
    }
}

/// A run that waits for the end of its input prints a note. The deadline of the run also ends this wait.
#[test]
fn wait_for_the_end_of_the_input_is_named_and_has_the_deadline_of_the_run() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("Fine."));
    let run = asks(&place, "run", "hello", &server);
    let mut running = run.stdin(Stdio::piped()).start();
    running.wait_stderr("waiting for the end of standard input");
    let mut input = running.take_stdin().expect("a pipe");
    input.write_all(b"late\n").expect("it is read");
    drop(input);
    running.end(crate::support::FACT_MAX).ok();
    assert_eq!(server.requests().len(), 1);

    let run = asks(&place, "run --timeout 1s", "hello", &server);
    let mut running = run.stdin(Stdio::piped()).start();
    let input = running.take_stdin().expect("a pipe");
    let ended = running.end(crate::support::FACT_MAX);
    assert_eq!(ended.code, 124, "{ended:#?}");
    drop(input);
    assert_eq!(server.requests().len(), 1);
}
