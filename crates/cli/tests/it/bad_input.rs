//! Invalid input and failing servers: the error is printed in one line, with a hint and the right exit code, and no
//! data is lost.

use std::cell::RefCell;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use allstop_testkit::own_loopback::free_addresses;

use crate::support::fault::Fault;
use crate::support::{Allstop, Place, schema};

/// Script of a model that answers with one word.
const SCRIPT: &str = "replies: [{text: Hello.}]";

/// Runs the command twice: with output for people, and with output for programs. The snapshot contains the output for
/// people. The output for programs must contain the same error.
///
/// `redact` replaces text that differs between runs, such as a port.
#[track_caller]
fn check<'a>(
    name: &str,
    place: &Place,
    redact: &[(&str, &str)],
    command: impl Fn() -> Allstop<'a>,
) {
    let ended = command().end();
    let mut seen = ended.stderr.clone();
    let place_path = place.path("");
    let folder = place_path.to_str().expect("text").trim_end_matches('/');
    for (from, to) in redact.iter().chain(&[(folder, "[PLACE]")]) {
        seen = seen.replace(from, to);
    }
    let seen = without_times(&seen);
    assert_eq!(seen.matches("error: ").count(), 1, "{name}: {seen}");
    assert!(
        seen.contains("hint: ") || seen.contains("--help"),
        "{name}: {seen}"
    );
    assert!(!seen.contains("panicked"), "{name}: {seen}");
    assert_eq!(ended.stdout, "", "{name}");
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, format!("exit {}\n{seen}", ended.code));
    });
    place.assert_nothing_runs();

    let for_programs = command().arg("--json").end();
    assert_eq!(for_programs.code, ended.code, "{name}: {for_programs:#?}");
    match ended.code {
        2 => {
            let error: serde_json::Value =
                serde_json::from_str(&for_programs.stdout).expect("an error object");
            schema::assert_valid("error", &error);
            assert_eq!(error["exit_code"], 2, "{name}");
            assert_eq!(
                for_programs.stderr.replace("--json ", ""),
                ended.stderr,
                "{name}"
            );
        }
        code => {
            let envelope = for_programs.envelope();
            assert_eq!(code, 1, "{name}");
            assert_eq!(envelope["stop_reason"], "error", "{name}: {envelope:#}");
            let message = envelope["error"]["message"].as_str().expect("a message");
            assert!(ended.stderr.contains(message), "{name}: {message}");
            assert_eq!(for_programs.stderr, "", "{name}");
        }
    }
}

/// Replaces the durations of calls in the printed lines.
fn without_times(seen: &str) -> String {
    let line = |line: &str| match line.rsplit_once("  ") {
        Some((call, _)) if line.starts_with('+') => format!("{call}  [TIME]\n"),
        _ => format!("{line}\n"),
    };
    seen.lines().map(line).collect()
}

/// Like [`check`], but for a run against a fake server. The run does not retry model calls.
#[track_caller]
fn check_answer(name: &str, answer: ServerAnswer) {
    let place = Place::new();
    let server = OpenAiServer::start([answer]);
    let config = place.file("allstop.toml", "[model]\nretries = 0\n");
    let address = server.address().to_string();
    check(name, &place, &[(&address, "[SERVER]")], || {
        place
            .run()
            .arg("--config")
            .arg(&config)
            .args("--model any --base-url")
            .arg(server.url())
            .arg("hello")
    });
}

#[test]
fn models() {
    let place = Place::new();
    for (name, args) in [
        ("no_model", ""),
        ("unknown_provider", "--model no-such-provider::model"),
        ("no_key", "--model openai::gpt-5-mini"),
        ("base_url_without_model", "--base-url http://127.0.0.1:1"),
        ("base_url_that_is_none", "--model any --base-url nonsense"),
        (
            "base_url_of_another_scheme",
            "--model any --base-url ftp://127.0.0.1/v1",
        ),
        ("no_script", "--model script:no-such-file.yaml"),
    ] {
        check(name, &place, &[], || place.run().args(args).arg("hello"));
    }
}

#[test]
fn flags() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    for (name, args) in [
        ("timeout_negative", "--timeout -1"),
        ("timeout_without_unit", "--timeout 5"),
        ("timeout_zero", "--timeout 0s"),
        ("grace_of_words", "--grace soon"),
        ("max_steps_zero", "--max-steps 0"),
        ("unknown_flag", "--no-such-flag"),
        ("unknown_policy", "--on-stop never"),
    ] {
        check(name, &place, &[], || {
            place
                .run()
                .arg("--model")
                .arg(&model)
                .args(args)
                .arg("hello")
        });
    }
    check("no_prompt", &place, &[], || {
        place.run().arg("--model").arg(&model)
    });
    check("unknown_session", &place, &[], || {
        place
            .run()
            .arg("--model")
            .arg(&model)
            .args("--session no-such-session hello")
    });
}

#[test]
fn a_working_directory_that_is_gone() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    check("no_folder", &place, &[], || {
        let run = place.run().arg("--model").arg(&model).arg("hello");
        run.by_shell("mkdir gone && cd gone && rmdir ../gone")
    });
}

#[test]
fn prompts() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    let run = || place.run().arg("--model").arg(&model);
    let stdin = |name: &str, content: &[u8]| {
        let path = place.file(name, content);
        move || fs::File::open(&path).expect("it was written")
    };
    check("prompt_empty", &place, &[], || run().arg("  "));
    check("prompt_not_utf8", &place, &[], || {
        run().arg(std::ffi::OsStr::from_bytes(b"caf\xe9"))
    });
    let latin = stdin("latin.txt", b"caf\xe9");
    check("stdin_not_utf8", &place, &[], || {
        run().arg("-").stdin(latin())
    });
    let long = stdin("long.txt", &vec![b'x'; 33 * 1024 * 1024]);
    check("stdin_too_long", &place, &[], || {
        run().arg("-").stdin(long())
    });
    let closed = stdin("empty.txt", b"");
    check("stdin_empty", &place, &[], || {
        run().arg("-").stdin(closed())
    });
}

#[test]
fn a_prompt_of_ten_megabytes_reaches_the_model_whole() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("Read.")]);
    let prompt = "word ".repeat(2 * 1024 * 1024);
    let file = place.file("prompt.txt", &prompt);
    let run = place
        .run()
        .args("--json --model any --base-url")
        .arg(server.url());
    let stdin = fs::File::open(file).expect("it was written");
    let ended = run.arg("-").stdin(stdin).end().ok();
    assert_eq!(ended.envelope()["output"], "Read.");
    let requests = server.requests();
    let sent = crate::support::history::prompts(requests[0].messages());
    assert_eq!(sent.len(), 1);
    assert!(
        sent[0] == prompt,
        "{} bytes of {}",
        sent[0].len(),
        prompt.len()
    );
}

#[test]
fn scripts() {
    for (name, yaml) in [
        ("script_not_yaml", "replies:\n  - text: \"Hello.\n"),
        (
            "script_unknown_key",
            "replies:\n  - text: Hello.\n    colour: red\n",
        ),
        (
            "script_of_another_kind",
            "replies:\n  - {text: Hello., delay: soon}\n",
        ),
        ("script_empty", ""),
    ] {
        let place = Place::new();
        let model = place.script(yaml);
        let file = model.rsplit('/').next().expect("a name");
        check(name, &place, &[(file, "[SCRIPT]")], || {
            place.run().arg("--model").arg(&model).arg("hello")
        });
    }
}

#[test]
fn a_script_that_has_run_out() {
    let place = Place::new();
    let model = place.script("replies: [{calls: [{tool: list, arguments: {}}]}]");
    let file = model.rsplit('/').next().expect("a name").to_owned();
    check("script_run_out", &place, &[(&file, "[SCRIPT]")], || {
        place.run().arg("--model").arg(&model).arg("hello")
    });
}

#[test]
fn configurations() {
    for (name, toml) in [
        ("config_not_toml", "[model]\nname = \"any\n"),
        (
            "config_unknown_key",
            "[model]\nname = \"any\"\ncolour = \"red\"\n",
        ),
        ("config_of_another_kind", "[limits]\nmax_steps = \"many\"\n"),
        ("config_bad_duration", "[deadlines]\nrun = \"soon\"\n"),
        ("config_bad_rule", "[permissions]\nallow = [\"read:x\"]\n"),
    ] {
        let place = Place::new();
        let config = place.file("allstop.toml", toml);
        check(name, &place, &[], || {
            place
                .run_script(SCRIPT)
                .arg("--config")
                .arg(&config)
                .arg("hello")
        });
    }
    let place = Place::new();
    check("no_config", &place, &[], || {
        place
            .run_script(SCRIPT)
            .args("--config no-such-file.toml hello")
    });
}

#[test]
fn answers() {
    check_answer("answer_401", ServerAnswer::status(401));
    check_answer("answer_404", ServerAnswer::status(404));
    check_answer("answer_500", ServerAnswer::status(500));
    check_answer("answer_html", ServerAnswer::html());
    check_answer(
        "answer_429_for_an_hour",
        ServerAnswer::status(429).header("retry-after", "3600"),
    );
    check_answer(
        "answer_cut_in_mid_token",
        ServerAnswer::text("Half an").raw("data: {\"choi").cut(),
    );
    check_answer(
        "answer_cut_in_a_tool_call",
        ServerAnswer::stream()
            .half_tool_call("call_1", "shell", "{\"comm")
            .cut(),
    );
    check_answer(
        "answer_ends_early",
        ServerAnswer::text("Half an").end_without_marker(),
    );
}

#[test]
fn nobody_listens() {
    let place = Place::new();
    let [address] = free_addresses();
    let address = address.to_string();
    check("nobody_listens", &place, &[(&address, "[SERVER]")], || {
        place
            .run()
            .args("--model any --base-url")
            .arg(format!("http://{address}/v1"))
            .arg("hello")
    });
}

#[test]
fn rate_limit_waits_only_within_the_deadline() {
    let limited = || ServerAnswer::status(429).header("retry-after", "1");
    let place = Place::new();
    let server = OpenAiServer::start([limited(), ServerAnswer::text("Hello.")]);
    let run = || {
        let run = place.run().args("--json --model any --base-url");
        run.arg(server.url()).arg("hello")
    };
    let ended = run().end().ok();
    assert_eq!(ended.envelope()["output"], "Hello.");
    assert!(ended.after >= Duration::from_secs(1), "{ended:#?}");

    let server = OpenAiServer::start([limited()]);
    let run = place
        .run()
        .args("--json --timeout 900ms --model any --base-url");
    let ended = run.arg(server.url()).arg("hello").end();
    let envelope = ended.envelope();
    assert_eq!(
        (ended.code, &envelope["error"]["kind"]),
        (1, &"rate_limited".into())
    );
    assert_eq!(server.requests().len(), 1);
    assert!(ended.after < Duration::from_millis(900), "{ended:#?}");
}

/// Creates a store with one session of one turn. Returns the id of the session.
fn filled(place: &Place) -> String {
    let ended = place.run_script(SCRIPT).args("--json hello").end().ok();
    ended.session()
}

#[track_caller]
fn turns(place: &Place, session: &str) -> usize {
    let shown = place.sessions().args("show --json").arg(session).end().ok();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    shown["turns"].as_array().expect("turns").len()
}

#[test]
fn stores() {
    let place = Place::new();
    place.file(
        "store.db",
        "This is not a database at all, but it is long enough.".repeat(9),
    );
    check("store_garbage", &place, &[], || {
        place.run_script(SCRIPT).arg("hello")
    });
    let kept = fs::read_to_string(place.store()).expect("it is there");
    assert!(kept.starts_with("This is not a database"), "{kept}");

    let place = Place::new();
    fs::create_dir(place.store()).expect("a folder");
    check("store_is_a_folder", &place, &[], || {
        place.run_script(SCRIPT).arg("hello")
    });

    let place = Place::new();
    check("store_nowhere", &place, &[], || {
        let run = place.allstop().args("run --store no/such/folder/store.db");
        run.arg("--model").arg(place.script(SCRIPT)).arg("hello")
    });
}

#[test]
fn a_store_that_may_not_be_written() {
    let place = Place::new();
    let session = filled(&place);
    let mode = |mode| {
        fs::set_permissions(place.store(), fs::Permissions::from_mode(mode)).expect("a mode");
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    };
    mode(0o444);
    check("store_read_only", &place, &[], || {
        place.run_script(SCRIPT).unprivileged().arg("hello")
    });
    mode(0o644);
    assert_eq!(turns(&place, &session), 1);
}

#[test]
fn a_disk_that_is_full_from_the_beginning() {
    let place = Place::new();
    let session = filled(&place);
    let fault = Fault::new(&place, "write store.db ENOSPC");
    check("disk_full", &place, &[], || {
        fault.below(
            place
                .run_script(SCRIPT)
                .args("hello --session")
                .arg(&session),
        )
    });
    assert_eq!(turns(&place, &session), 1);
    let again = place.run_script("replies: [{text: one}, {text: two}]");
    let again = again
        .args("hello --json --session")
        .arg(&session)
        .end()
        .ok();
    assert_eq!(again.envelope()["turn"], 2);
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_turn() {
    let place = Place::new();
    let session = RefCell::new(String::new());
    let ready = place.work().join("ready");
    let rule = format!("write store.db ENOSPC when={}", ready.display());
    let fault = Fault::new(&place, &rule);
    // Each run has its own session, because the second run in one session would also warn about the call of the first.
    check("disk_fills_up", &place, &[], || {
        drop(fs::remove_file(&ready));
        session.replace(filled(&place));
        let script = "turns: [{replies: [{calls: [{tool: shell, arguments: {command: 'touch ready'}}]}, {text: done}]}]";
        let run = place.run_script(script).args("hello --session");
        fault.below(run.arg(session.borrow().as_str()))
    });
    fs::remove_file(&ready).expect("the tool ran");
    let run = place.run_script("replies: [{text: one}, {text: two}]");
    let run = run
        .args("hello --json --session")
        .arg(session.borrow().as_str());
    assert_eq!(run.end().ok().envelope()["output"], "two");
}

/// The URL of the server contains a secret. Also checks that no message repeats, and that messages for people appear
/// only on a terminal.
#[test]
fn a_secret_in_the_url_is_not_shown() {
    let place = Place::new();
    let run = place
        .run()
        .args("--model any --base-url http://me:hunter2@127.0.0.1:1/v1 hello");
    let ended = run.end();
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:#?}");
    let run = place
        .run()
        .args("--json --model any --base-url http://me:hunter2@127.0.0.1:1/v1");
    let ended = run.arg("hello").end();
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:#?}");
    let mut written = 0;
    for suffix in ["", "-wal"] {
        let mut file = place.store().into_os_string();
        file.push(suffix);
        let store = fs::read(file).expect("a store and its write-ahead log");
        let store = String::from_utf8_lossy(&store);
        assert!(!store.contains("hunter2"), "{suffix}");
        written += usize::from(store.contains("session_opened"));
    }
    assert_eq!(written, 1, "the session is in one of them");
}
