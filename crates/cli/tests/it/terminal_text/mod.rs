//! Sends text with unsafe characters through every output path to a terminal. The unsafe characters must be escaped or
//! omitted.

mod hostile;

use allstop_core::terminal_text::is_unsafe_in_question;
use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::json;

use crate::support::terminal::Terminal;
use crate::support::{Allstop, FACT_MAX, Place, Signal, eventually};
use hostile::{check, check_harmless, hostile, quoted, short_hostile, without_ours};

/// Everything that a command writes to a terminal, if all three streams are connected to this terminal.
fn shown(command: Allstop<'_>) -> String {
    let terminal = Terminal::new();
    drop(at(&terminal, command).end());
    terminal.all_shown()
}

fn at<'a>(terminal: &Terminal, command: Allstop<'a>) -> Allstop<'a> {
    let command = command.env("TERM", "xterm").env("LANG", "C.UTF-8");
    command.on_screen(terminal.line())
}

#[test]
fn nothing_of_a_provider_is_raw() {
    let hostile = hostile();
    let error = json!({"error": {"message": hostile}}).to_string();
    let answers = || {
        let call = ServerAnswer::stream()
            .delta(&json!({"reasoning_content": hostile}))
            .chunk(&hostile)
            .tool_call(&hostile, &hostile, &json!({"path": hostile}).to_string());
        [call, ServerAnswer::text(&hostile)]
    };
    for flags in ["--yes", "--yes --json", "--yes --stream-json"] {
        let shown = |answers: Vec<ServerAnswer>| {
            let place = Place::new();
            let server = OpenAiServer::start(answers);
            let run = place.run_unasked().args(flags).args("--model any hello");
            shown(run.arg("--base-url").arg(server.url()))
        };
        let page = |status, kind: &str, body: &str| vec![ServerAnswer::page(status, kind, body); 3];
        check(flags, &shown(page(400, "application/json", &error)));
        check(flags, &shown(page(500, "text/plain", &hostile)));
        check_harmless(flags, &shown(page(200, "text/html", &hostile)));
        check(flags, &shown(answers().into()));
    }
}

/// The command of the call contains characters that must be escaped in the permission question.
#[test]
fn nothing_of_a_question_is_raw() {
    let asked = format!("{}\u{200d}\u{fe0f}\u{a0}", hostile());
    let call = format!(
        "replies: [{{calls: [{{id: {0}, tool: shell, arguments: {{command: {0}}}}}]}}, {{text: No.}}]",
        quoted(&asked)
    );
    for command in ["run", "chat"] {
        let place = Place::new();
        let terminal = Terminal::new();
        let asks = place.allstop().arg(command).arg("hello").arg("--store");
        let asks = asks
            .arg(place.store())
            .arg("--model")
            .arg(place.script(&call));
        let running = at(&terminal, asks).start();
        terminal.wait("[n]o");
        terminal.type_keys("n\r");
        terminal.wait("No.");
        drop(match command {
            "chat" => terminal.leaves_chat(running),
            _ => running.end(FACT_MAX),
        });
        let shown = terminal.all_shown();
        check(command, &shown);
        let (_, question) = shown.split_once("? Allow").expect("it was asked");
        let (question, _) = question.split_once("[n]o").expect("it has choices");
        let question = without_ours(question);
        let harm = question
            .chars()
            .find(|c| is_unsafe_in_question(*c) && *c != '\n');
        assert_eq!(harm, None, "{command}: {question:?}");
    }
}

#[test]
fn nothing_of_an_argument_or_a_variable_is_raw() {
    let hostile = hostile();
    let short = short_hostile();
    let place = Place::new();
    let script = || place.script("replies: [{text: Hello.}]");
    let all = place.allstop();
    let run = || place.run();
    let ways = [
        (
            "a subcommand",
            all.arg(hostile.replace(|c: char| c.is_ascii_whitespace(), "")),
        ),
        ("a flag", run().arg(format!("--{hostile}"))),
        ("a duration", run().arg("--grace").arg(&hostile).arg("x")),
        ("a policy", run().arg("--on-stop").arg(&hostile).arg("x")),
        ("help", run().arg("--help").env("ALLSTOP_MODEL", &hostile)),
        ("a model", run().arg("--model").arg(&hostile).arg("x")),
        (
            "a script",
            run()
                .arg("--model")
                .arg(format!("script:{hostile}"))
                .arg("x"),
        ),
        (
            "a server",
            run().args("--model x --base-url").arg(&hostile).arg("x"),
        ),
        (
            "a configuration",
            run().arg("--config").arg(&hostile).arg("x"),
        ),
        (
            "a session",
            run()
                .arg("--session")
                .arg(&hostile)
                .arg("--model")
                .arg(script())
                .arg("x"),
        ),
        (
            "a store",
            place.allstop().args("sessions list --store").arg(&short),
        ),
        (
            "a recording",
            run()
                .arg("--record")
                .arg(&short)
                .arg("--model")
                .arg(script())
                .arg("x"),
        ),
        ("an id", place.sessions().arg("show").arg(&hostile)),
        ("an id to remove", place.sessions().arg("rm").arg(&hostile)),
        ("a shell", place.allstop().arg("completions").arg(&hostile)),
    ];
    for (way, command) in ways {
        check(way, &shown(command));
    }
}

#[test]
fn nothing_of_a_stored_session_is_raw() {
    let hostile = hostile();
    let short = short_hostile();
    let place = Place::new();
    let script = format!(
        "replies: [{{text: {0}, calls: [{{id: {0}, tool: shell, arguments: {{background: true, command: {1}}}}}]}}, {{text: x, stall: mid_stream}}]",
        quoted(&hostile),
        quoted(&format!("sleep 600 # {hostile}"))
    );
    let folder = place.work().join(&short);
    std::fs::create_dir(&folder).expect("a folder");
    let run = place
        .run_script(&script)
        .args("--on-stop keep --timeout 3s");
    let run = run.arg(&hostile).by_shell("cd a*");
    check("a run", &shown(run));
    let id = place.only_session();
    for look in ["show", "show --full", "show --json --full"] {
        check(look, &shown(place.sessions().args(look).arg(&id)));
    }
    let resumed = place
        .allstop()
        .args("sessions resume")
        .arg(&id)
        .arg("/quit");
    let resumed = resumed.arg("--store").arg(place.store());
    check(
        "resumed",
        &shown(
            resumed
                .arg("--model")
                .arg(place.script("replies: [{text: x}]")),
        ),
    );
}

#[test]
fn nothing_of_a_file_or_another_program_is_raw() {
    let hostile = hostile();
    let text = quoted(&hostile);
    let place = Place::new();
    let bytes = place.file("bytes", &hostile).display().to_string();
    let script = "replies: [{calls: [{tool: list, arguments: {}}]}, {text: Hello.}]";
    for (way, toml) in [
        ("a section", format!("[{text}]\n")),
        ("a key", format!("[model]\n{text} = 1\n")),
        ("a duration", format!("[deadlines]\nrun = {text}\n")),
        ("a rule", format!("[permissions]\nallow = [{text}]\n")),
        (
            "a server's command",
            format!("[mcp.servers.x]\ncommand = {text}\n"),
        ),
        (
            "a server that ends",
            format!(
                "[mcp.servers.x]\ncommand = \"sh\"\nargs = [\"-c\", \"cat {bytes} >&2; exit 3\"]\n"
            ),
        ),
        (
            "a hook",
            format!(
                "[[hooks]]\non = \"tool_start\"\ncommand = \"cat {bytes}; cat {bytes} >&2; exit 2\"\n"
            ),
        ),
        (
            "a guardrail",
            format!("[[guardrails]]\non = \"output\"\ncommand = \"cat {bytes}; exit 2\"\n"),
        ),
        (
            "a guardrail that fails",
            format!("[[guardrails]]\non = \"output\"\ncommand = \"cat {bytes} >&2; exit 3\"\n"),
        ),
    ] {
        let config = place.file("hostile.toml", toml);
        let run = place.run_script(script).arg("hello").arg("--config");
        check(way, &shown(run.arg(config)));
    }
    for (way, yaml) in [
        ("a key of a script", format!("replies: [{{{text}: x}}]")),
        (
            "a duration of a script",
            format!("replies: [{{text: x, delay: {text}}}]"),
        ),
    ] {
        check(way, &shown(place.run_script(&yaml).arg("hello")));
    }
    // The error messages about these files quote no text from the file.
    let prints = format!("[mcp.servers.x]\ncommand = \"cat\"\nargs = [\"{bytes}\"]\n");
    let url = format!("[mcp.servers.x]\nurl = {text}\n");
    for toml in [hostile.clone(), prints, url] {
        let config = place.file("hostile.toml", toml);
        let run = place.run_script(script).arg("hello").arg("--config");
        check_harmless("a file", &shown(run.arg(config)));
    }
    check_harmless("a script", &shown(place.run_script(&hostile).arg("x")));
}

#[test]
fn nothing_in_a_chat_is_raw() {
    let hostile = hostile();
    let place = Place::new();
    let bytes = place.file("bytes", &hostile).display().to_string();
    let script = format!(
        "
turns:
  - when: server
    replies:
      - calls: [{{tool: shell, arguments: {{command: \"cat {bytes}; sleep 600\", background: true}}}}]
      - {{text: \"It is up.\"}}
  - when: hang
    replies:
      - text: {0}
        calls: [{{tool: shell, id: {0}, arguments: {{command: {1}}}}}]
replies: [{{reasoning: {0}, text: {0}}}, {{error: {{status: 400, message: {0}}}}}]
",
        quoted(&hostile),
        quoted(&format!("touch begun; sleep 600 # {hostile}"))
    );
    let terminal = Terminal::new();
    let chat = place
        .allstop()
        .args("chat --yes --policy enqueue --store")
        .arg(place.store());
    let mut chat = at(&terminal, chat.arg("--model").arg(place.script(&script))).start();
    terminal.wait("\u{1b}[?2004h");
    let paste = format!("\u{1b}[200~{}\u{1b}[201~", hostile.replace(|c| c < ' ', ""));
    let says = |line: &str, answer: &str| {
        terminal.type_keys(&format!("{line}\r"));
        terminal.wait(answer);
    };
    // The test waits for an escaped character in the answer. The pasted text contains no control sequence, because such
    // a sequence could end the paste.
    says(&format!("m {paste}"), "\\u{1b}[3J");
    says(&format!("once more {paste}"), "error:");
    says("server", "It is up.");
    for (command, answers) in [
        ("background", ["bg_1: runs"; 2]),
        ("background output bg_1", ["[bg_1"; 2]),
        // The second answer comes if the turn has not ended yet.
        ("stop", ["Nothing to stop", "stopped by you (/stop)"]),
        ("policy", ["policy"; 2]),
    ] {
        terminal.type_keys(&format!("/{command}\r"));
        eventually("an answer", || {
            let written = terminal.written();
            answers
                .iter()
                .any(|answer| written.contains(answer))
                .then_some(())
        });
        terminal.type_keys(&format!("/{command} {paste}\r"));
        terminal.type_keys("\u{15}");
    }
    terminal.type_keys(&format!("\u{12}{paste}\u{7}\u{15}"));
    says("hang", "touch begun");
    says("/preview all", "Would stop");
    says("/history", "shell: ");
    chat.signal(Signal::TERM);
    drop(chat.end(FACT_MAX));
    check("a chat", &terminal.all_shown());
}
