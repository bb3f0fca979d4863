//! The files of a store after the end of a command.

use std::fs;

use serde_json::json;

use crate::serve::Server;
use crate::support::terminal::Terminal;
use crate::support::{Place, Signal};

const SCRIPT: &str = "replies: [{text: The answer.}]";

/// Copies only `store.db`, as a simple back-up does, and returns the sessions in the copy.
fn sessions_of_copy(place: &Place) -> String {
    let copy = place.path("copy.db");
    fs::copy(place.store(), &copy).expect("a copy");
    let listed = place.allstop().args("sessions list --store").arg(copy);
    listed.end().ok().stdout
}

#[test]
fn copy_of_the_file_after_the_end_of_serve_is_complete() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    let server = Server::start_with(&place, &format!("--model {model}"));
    let body = json!({
        "message": {"messageId": "m", "contextId": "c1", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
    });
    let sent = server.request("POST /message:send", &body.to_string());
    assert!(sent.expect("an answer").1.contains("The answer."));
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    let sessions = sessions_of_copy(&place);
    assert!(sessions.contains("context-c1"), "{sessions}");
}

#[test]
fn copy_of_the_file_after_the_end_of_a_chat_is_complete() {
    let place = Place::new();
    let terminal = Terminal::new();
    let chat = place.allstop().args("chat --store").arg(place.store());
    let chat = chat.arg("--model").arg(place.script(SCRIPT)).arg("hello");
    let running = chat.on_terminal(terminal.line()).start();
    running.wait_stdout("The answer.");
    assert_eq!(running.end_by(Signal::TERM).code, 143);
    let sessions = sessions_of_copy(&place);
    assert!(sessions.contains("hello"), "{sessions}");
}
