//! `allstop init`: creates a configuration interactively.

use std::fs;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::chat_user::CTRL_D;
use crate::support::terminal::Terminal;
use crate::support::{Allstop, FACT_MAX, Place};

/// Answers the questions in order. Returns the exit code and the screen.
fn init(place: &Place, answers: &[&str]) -> (i32, String) {
    let terminal = Terminal::new();
    let init = place.allstop().arg("init").env("TERM", "xterm");
    // The question about the model asks the provider for its models. No test reaches a provider.
    let init = init.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let init = init.env("ANTHROPIC_API_KEY", "a-key");
    let running = init.on_terminal(terminal.line()).start();
    for (count, keys) in answers.iter().enumerate() {
        terminal.wait(QUESTIONS[count]);
        terminal.type_keys(keys);
    }
    let ended = running.end(FACT_MAX);
    (ended.code, terminal.all_shown())
}

/// Parts of the texts of the questions, in order.
const QUESTIONS: [&str; 4] = [
    "number [1]",
    "Name of the model [",
    "What may the agent do without a question?",
    "yes\r\n",
];

fn file(place: &Place) -> std::path::PathBuf {
    place.path("home/.config/allstop/allstop.toml")
}

#[test]
fn init_writes_a_file_and_never_replaces_one_unasked() {
    let place = Place::new();
    let (code, screen) = init(&place, &["\n", "\n", "2\n", "\n"]);
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("ANTHROPIC_API_KEY is set"), "{screen}");
    let reason = "the list of models is not available:";
    assert!(screen.contains(reason), "{screen}");
    let text = fs::read_to_string(file(&place)).unwrap();
    for part in ["name = \"claude-sonnet-4-5\"", "mode = \"accept-edits\""] {
        assert!(
            text.contains(part) && screen.contains(part),
            "{part} in {text}"
        );
    }
    // An empty answer to the question about the existing file means no.
    let (code, screen) = init(&place, &["\n", "other\n", "1\n", "\n"]);
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("exists. Replace all of it?"), "{screen}");
    assert_eq!(fs::read_to_string(file(&place)).unwrap(), text);
    let (code, screen) = init(&place, &["\n", "other\n", "1\n", "9\n2\n"]);
    assert_eq!(code, 0, "{screen}");
    let text = fs::read_to_string(file(&place)).unwrap();
    assert!(
        text.contains("name = \"other\"") && !text.contains("allow"),
        "{text}"
    );
}

#[test]
fn ctrl_c_and_a_missing_terminal_write_nothing() {
    let place = Place::new();
    let (code, _) = init(&place, &["\n", "\x03"]);
    assert_eq!(code, 130);
    let ended = place.allstop().arg("init").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("[model]"), "{}", ended.stderr);
    assert!(!file(&place).exists());
}

/// A chat sends this control sequence when it has taken over the terminal, and the questions of `init` do not.
const CHAT_IS_READY: &str = "\x1b[?1004h";

/// Starts a command at a terminal with all three streams.
fn at_terminal(command: Allstop<'_>, terminal: &Terminal) -> crate::support::Running {
    let command = command.env("TERM", "xterm").env("LANG", "C.UTF-8");
    command.on_screen(terminal.line()).start()
}

fn models(names: &[&str]) -> ServerAnswer {
    let list: Vec<_> = names
        .iter()
        .map(|name| serde_json::json!({ "id": name }))
        .collect();
    let list = serde_json::json!({ "data": list }).to_string();
    ServerAnswer::page(200, "application/json", list)
}

/// Answers the questions of `init` up to the question about the model, with this server.
fn chooses_server(terminal: &Terminal, server: &OpenAiServer) {
    terminal.wait("number [1]");
    terminal.type_keys("\n");
    terminal.wait("URL of the server");
    // Regression: a URL without a scheme was written to the file, and no chat could begin.
    terminal.type_keys("127.0.0.1:8080\n");
    terminal.wait("is no URL of a server");
    terminal.type_keys(&format!("{}\n", server.url()));
}

#[test]
fn init_lists_the_models_of_the_server() {
    let place = Place::new();
    let server = OpenAiServer::start([models(&["small", "large\u{1b}[2J", "large"])]);
    let terminal = Terminal::new();
    let running = at_terminal(place.allstop().arg("init"), &terminal);
    chooses_server(&terminal, &server);
    terminal.wait("  2 large");
    terminal.wait("Number or name of the model [small]");
    terminal.type_keys("9\n");
    terminal.wait("the list has the numbers 1 to 2");
    terminal.type_keys("2\n");
    terminal.wait("What may the agent do");
    terminal.type_keys("\n");
    terminal.wait("Write this to");
    terminal.type_keys("\n");
    assert_eq!(running.end(FACT_MAX).code, 0, "{}", terminal.all_shown());
    assert_eq!(server.requests()[0].line, "GET /v1/models");
    let text = fs::read_to_string(file(&place)).unwrap();
    assert!(text.contains("name = \"large\""), "{text}");
}

#[test]
fn init_goes_on_without_a_list() {
    for answer in [
        ServerAnswer::status(404),
        ServerAnswer::html(),
        ServerAnswer::page(200, "application/json", "{\"data\":["),
        ServerAnswer::page(200, "application/json", "{\"data\":[]}"),
    ] {
        let place = Place::new();
        let server = OpenAiServer::start([answer]);
        let terminal = Terminal::new();
        let running = at_terminal(place.allstop().arg("init"), &terminal);
        chooses_server(&terminal, &server);
        terminal.wait("Name of the model [default]");
        terminal.type_keys("\x03");
        assert_eq!(running.end(FACT_MAX).code, 130, "{}", terminal.all_shown());
    }
}

/// The wait for the list ends at once.
#[test]
fn ctrl_c_ends_the_wait_for_the_list() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::stream().stall_before_headers()]);
    let terminal = Terminal::new();
    let running = at_terminal(place.allstop().arg("init"), &terminal);
    chooses_server(&terminal, &server);
    let asked = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() == 1);
    assert!(asked.is_ok());
    terminal.type_keys("\x03");
    assert_eq!(running.end(FACT_MAX).code, 130, "{}", terminal.all_shown());
    assert!(!file(&place).exists());
}

#[test]
fn bare_command_opens_a_chat_or_asks_first() {
    let place = Place::new();
    let terminal = Terminal::new();
    let bare = place.allstop().env("ALLSTOP_MODEL", "script:demo");
    let running = at_terminal(bare.env("ALLSTOP_STORE", place.store()), &terminal);
    terminal.wait("/help lists commands and keys");
    terminal.wait(CHAT_IS_READY);
    terminal.type_keys(CTRL_D);
    assert_eq!(running.end(FACT_MAX).code, 0, "{}", terminal.all_shown());

    let server = OpenAiServer::deciding(|number, _| match number {
        0 => models(&["small"]),
        _ => ServerAnswer::text("Fine."),
    });
    let terminal = Terminal::new();
    let bare = place.allstop().env("ALLSTOP_STORE", place.store());
    let running = at_terminal(bare, &terminal);
    terminal.wait("no model is configured yet");
    chooses_server(&terminal, &server);
    for question in ["Number or name", "What may the agent do", "Write this to"] {
        terminal.wait(question);
        terminal.type_keys("\n");
    }
    terminal.wait("/help lists commands and keys");
    terminal.wait(CHAT_IS_READY);
    terminal.type_keys("hello\r");
    terminal.wait("Fine.");
    let ended = terminal.leaves_chat(running);
    assert_eq!(ended.code, 0, "{}", terminal.all_shown());
    assert_eq!(server.requests()[1].body["model"], "small");
    // Without a terminal, the command line is a usage error.
    let ended = place.allstop().end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("Usage: allstop"), "{}", ended.stderr);
}

#[test]
fn command_lines_of_other_agents_run_or_name_the_command() {
    let place = Place::new();
    let model = place.script("replies: [{text: One.}, {text: Two.}, {text: Three.}]");
    let with = |line: &str| {
        let command = place.allstop().args(line).args("--yes --model").arg(&model);
        command.arg("--store").arg(place.store()).end().ok().stdout
    };
    assert_eq!(with("-p hello"), "One.\n");
    assert_eq!(with("-c -p hello"), "Two.\n");
    assert_eq!(with("exec hello --continue"), "Three.\n");
    let listed = place.allstop().arg("resume").end();
    assert!(
        listed.stderr.contains("allstop sessions resume last"),
        "{}",
        listed.stderr
    );
    for (line, remedy) in [
        ("login", "Allstop stores no keys: set the variable"),
        ("models", "`allstop init` lists the models"),
        ("run -p hello", "the prompt needs no flag"),
    ] {
        let ended = place.allstop().args(line).end();
        assert_eq!(ended.code, 2);
        assert!(ended.stderr.contains(remedy), "{line}: {}", ended.stderr);
    }
}

#[test]
fn error_without_a_model_names_the_ways_to_one() {
    let place = Place::new();
    let ended = place.allstop().args("run hello").end();
    assert_eq!(ended.code, 2);
    for way in [
        "OPENAI_API_KEY",
        "allstop init",
        "--model script:demo",
        "--base-url",
    ] {
        assert!(ended.stderr.contains(way), "{way}: {}", ended.stderr);
    }
}
