//! User interface of the command: help, version, styles, default model, documentation.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::place::repository;
use crate::support::terminal::Terminal;
use crate::support::{FACT_MAX, Place, schema, subcommands};

/// Each `--help` has an example and the exit codes.
#[test]
fn each_command_explains_itself() {
    let place = Place::new();
    let all = subcommands::all(&place);
    assert!(all.len() > 40, "{all:?}");
    for command in all.iter().map(String::as_str).chain([""]) {
        for flag in ["--help", "-h"] {
            let ended = place.allstop().args(command).arg(flag).end().ok();
            for part in ["Usage: allstop", "Exit codes:", "Examples:"] {
                assert!(ended.stdout.contains(part), "{command}: {part}: {ended:#?}");
            }
            assert_eq!(ended.stderr, "", "{command}");
            assert!(!ended.stdout.contains("__keeper"), "{command}: {ended:#?}");
        }
    }
    let version = place.allstop().arg("--version").end().ok();
    assert_eq!(
        version.stdout,
        format!("allstop {}\n", env!("CARGO_PKG_VERSION"))
    );
    let nothing = place.allstop().end();
    assert_eq!(nothing.code, 2, "{nothing:#?}");
    assert!(nothing.stderr.contains("Usage: allstop"), "{nothing:#?}");
}

#[test]
fn completions_are_scripts_that_their_shells_can_read() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place
            .allstop()
            .arg("completions")
            .arg(shell)
            .end()
            .ok()
            .stdout;
        assert!(script.contains("allstop"), "{shell}");
        if shell == "bash" {
            let file = place.file("completions.bash", &script);
            let read = Command::new("bash")
                .arg("-n")
                .arg(file)
                .output()
                .expect("bash");
            assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
        }
    }
}

#[test]
fn quoted_prompt_needs_no_subcommand() {
    let place = Place::new();
    let script = place.script("replies: [{text: Hello.}, {text: Again.}]");
    let prompt = |words: &[&str]| {
        let mut run = place.allstop();
        for word in words {
            run = run.arg(word);
        }
        run.env("ALLSTOP_MODEL", &script).end()
    };
    let ended = prompt(&["say hello", "--then", "and again"]).ok();
    assert_eq!(ended.stdout, "Hello.\nAgain.\n");
    assert_eq!(prompt(&["run", "say", "hello"]).ok().stdout, "Hello.\n");
    for (words, hint) in [
        (&["sesions", "list"][..], "'sessions'"),
        (&["fix", "the", "tests"], "allstop run 'fix the tests'"),
        (&["--yes", "fix it"], "flags follow the command"),
        (&["run", "fix it", "test it"], "--then"),
    ] {
        let ended = prompt(words);
        assert_eq!(ended.code, 2, "{ended:#?}");
        assert!(ended.stderr.contains(hint), "{ended:#?}");
    }
}

#[test]
fn only_key_chooses_the_model_and_is_reported() {
    let place = Place::new();
    let run = || {
        let hello = place.allstop().args("run --timeout 5s hello");
        // The proxy refuses the connection, so no request leaves this machine.
        hello.env("HTTPS_PROXY", "http://127.0.0.1:1")
    };
    let said = "model gpt-5-mini, because OPENAI_API_KEY is set; --model chooses another";
    let one = run().env("OPENAI_API_KEY", "not-a-key").end();
    assert!(one.stderr.contains(said), "{one:#?}");
    assert!(!one.stderr.contains("not-a-key"), "{one:#?}");
    let two = run()
        .env("OPENAI_API_KEY", "not-a-key")
        .env("ANTHROPIC_API_KEY", "nor-this")
        .end();
    assert_eq!(two.code, 2, "{two:#?}");
    for says in [
        "OPENAI_API_KEY and ANTHROPIC_API_KEY are set",
        "--model gpt-5-mini",
        "--model claude-",
    ] {
        assert!(two.stderr.contains(says), "{says}: {two:#?}");
    }
}

/// The example configuration from the documentation.
fn documented_config() -> String {
    let text = std::fs::read_to_string(repository().join("docs/configuration.md"));
    let text = text.expect("it is in the repository");
    let (_, rest) = text.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    example.to_owned()
}

#[test]
fn the_documented_configuration_is_valid_and_works() {
    let example = documented_config();
    let value: Value = toml::from_str(&example).expect("TOML");
    schema::assert_valid("config", &value);
    let place = Place::new();
    // The hook and the servers in the example are placeholders, which readers replace by their own commands. So the
    // test replaces or removes them.
    let example = example.replace("./check-call.sh", "true");
    let mut example: toml::Table = toml::from_str(&example).expect("TOML");
    assert!(example.remove("mcp").is_some());
    let example = toml::to_string(&example).expect("TOML");
    let config = place.file("allstop.toml", example);
    let script = "replies: [{calls: [{tool: list, arguments: {}}]}, {text: Hello.}]";
    let run = place.run_script(script).arg("--config").arg(config);
    let ended = run.args("--json hello").end().ok();
    assert_eq!(ended.envelope()["output"], "Hello.");
}

#[test]
fn colours_are_for_terminals_and_for_who_wants_them() {
    let script =
        "replies: [{calls: [{tool: shell, arguments: {command: exit 3}}]}, {text: Hello.}]";
    let shown = |variables: &[(&str, &str)]| {
        let place = Place::new();
        let terminal = Terminal::new();
        let mut run = place
            .run_script(script)
            .on_terminal(terminal.line())
            .arg("hello");
        for (name, value) in variables {
            run = run.env(name, value);
        }
        run.start().end(FACT_MAX).ok();
        terminal.wait("session ");
        terminal.shown()
    };
    let has_colour = |shown: &str| {
        shown.contains("\x1b[3") || shown.contains("\x1b[1m") || shown.contains("\x1b[2m")
    };
    let plain = shown(&[("TERM", "xterm"), ("NO_COLOR", "1")]);
    assert!(!has_colour(&plain), "{plain:?}");
    let dumb = shown(&[("TERM", "dumb")]);
    assert!(!dumb.contains('\x1b'), "{dumb:?}");
    let coloured = shown(&[("TERM", "xterm")]);
    assert!(has_colour(&coloured), "{coloured:?}");

    let place = Place::new();
    let piped = place
        .run_script(script)
        .env("TERM", "xterm")
        .arg("hello")
        .end()
        .ok();
    assert!(
        !format!("{}{}", piped.stdout, piped.stderr).contains('\x1b'),
        "{piped:#?}"
    );
    assert_eq!(piped.stdout, "Hello.\n");
}

#[test]
fn demo_proofs_hold() {
    let place = Place::new();
    let ended = place.allstop().args("demo").stdin(Stdio::null()).end().ok();
    println!("{}\n{}", ended.stdout, ended.stderr);
    place.assert_nothing_runs();
    assert!(
        ended.after < std::time::Duration::from_secs(15),
        "{:?}",
        ended.after
    );
}

#[test]
fn unstoppable_work_is_named_and_delays_nothing() {
    let place = Place::new();
    let ended = place
        .allstop()
        .args("demo --wedged --json")
        .stdin(Stdio::null())
        .end();
    assert_eq!(ended.code, 1, "{ended:#?}");
    let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let receipt = &said["receipt"];
    assert_eq!(receipt["quiet"], false);
    assert_eq!(receipt["cancel_observed"], false);
    assert!(receipt.get("quiet_after_ms").is_none());
    let items = receipt["items"].as_array().expect("items");
    let wedged = items.iter().find(|item| item["name"] == "crunch");
    let wedged = wedged.expect("the thread is named");
    assert_eq!(wedged["state"], "still_running");
    assert_eq!(wedged["why"], "blocking_thread");
    assert_eq!(
        said["next_answer"],
        "Ready. Nothing of the stopped turn is in the way."
    );
    place.assert_nothing_runs();
}
