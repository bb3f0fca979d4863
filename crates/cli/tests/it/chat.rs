//! Tests of a chat, with the test as the user at the terminal.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser, SCRIPT, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, Signal, eventually};

const UP: &str = "\x1b[A";

#[test]
fn ctrl_c_stops_a_turn_in_mid_stream_and_the_chat_goes_on() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("hang").waits_for("This sentence");
    user.presses("half").waits_for("› half").presses(CTRL_C);
    user.waits_for("stopped by you (Ctrl-C)")
        .waits_for("Nothing is left running");
    user.waits_for("› half")
        .presses("\x15")
        .types("short")
        .waits_for("A short answer.");
    user.presses(CTRL_D);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    assert_in_order(
        &screen,
        &[
            "› hang",
            "This sentence",
            "stopped by you",
            "› short",
            "A short answer.",
        ],
    );
    assert!(!screen.contains("no end at all"), "{screen}");
}

#[test]
fn a_second_ctrl_c_forces() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes --grace 60s");
    user.types("stubborn");
    let begun = within(FACT_MAX, || {
        place.work().join("begun").exists().then_some(())
    });
    assert!(begun.is_some(), "{}", user.screen());
    user.presses(CTRL_C).waits_for("Ctrl-C forces now");
    user.presses_until(CTRL_C, "using force on the remaining work");
    user.waits_for("stopped by SIGKILL").presses(CTRL_D);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
}

/// Regression: Ctrl-\ ended the chat without a receipt and left the terminal in the mode of the chat.
#[test]
fn ctrl_backslash_quits_at_once_with_a_receipt() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes --grace 60s");
    user.types("stubborn");
    let begun = within(FACT_MAX, || {
        place.work().join("begun").exists().then_some(())
    });
    assert!(begun.is_some(), "{}", user.screen());
    user.presses("\x1c")
        .waits_for("stopped by SIGQUIT")
        .waits_for("stopped by SIGKILL");
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 131, "{screen}");
}

/// The turn is over, but its hook still runs. The preview of a stop lists the hook. At the end of the chat, the hook is
/// stopped, and the receipt lists it.
#[test]
fn leaving_a_chat_ends_a_running_hook() {
    let place = Place::new();
    let hook = format!("touch ready; exec {}", place.sleeper());
    let config = format!("[[hooks]]\non = \"stop\"\ncommand = \"{hook}\"\n");
    let config = place.file("allstop.toml", config);
    let user = ChatUser::start_chat(&place, &format!("--config {}", config.display()));
    user.types("hang")
        .waits_for("This sentence")
        .presses(CTRL_C);
    user.waits_for("stopped by you (Ctrl-C)");
    let ready = place.work().join("ready");
    eventually("the hook", || ready.exists().then_some(()));
    user.types("/preview all")
        .waits_for("Would stop")
        .waits_for("hook");
    user.presses(CTRL_D);
    user.waits_for("the session was closed").waits_for("✓ hook");
    drop(user.leaves_chat());
}

#[test]
fn escape_stops_the_turn_and_the_last_session_goes_on() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("hang")
        .waits_for("This sentence")
        .presses("\x1b");
    user.waits_for("stopped by you (Esc)");
    user.types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    drop(user.leaves_chat());
    let user = ChatUser::start_chat(&place, "--continue");
    user.waits_for("A short answer.").presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn follow_up_replaces_the_turn_under_interrupt() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--policy interrupt");
    user.types("hang").waits_for("This sentence");
    user.types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_in_order(
        &screen,
        &[
            "› hang",
            "stopped by your next message",
            "› short",
            "A short answer.",
        ],
    );
}

#[test]
fn follow_up_waits_under_enqueue_and_fails_under_reject() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--policy enqueue");
    user.types("hang").waits_for("This sentence");
    user.types("short").waits_for("waits: short");
    user.types("/policy reject").waits_for("policy reject");
    user.types("more")
        .waits_for("not sent: a turn is running")
        .waits_for("› more");
    // After the stop of the turn, the input line appears again, and also contains the message that was queued.
    user.presses(CTRL_C)
        .waits_for("stopped by you")
        .waits_for("the waiting message is back on the input line")
        .waits_for("› short");
    user.presses("\x15\x08\x15").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_in_order(&screen, &["› hang", "stopped by you"]);
    assert!(!screen.contains("A short answer."), "{screen}");
}

/// The background command kills its keeper, the process that watches it. So the result of the work is unknown.
#[test]
fn background_work_that_kills_its_keeper_has_an_unknown_end() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("orphan").waits_for("bg_1 has ended: unknown");
    user.presses(CTRL_D);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    place.assert_nothing_runs();
}

#[test]
fn leaving_a_chat_stops_its_background_shell() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("server").waits_for("It is up.");
    for _ in 0..3 {
        user.types("short");
    }
    user.types("/background").waits_for("bg_1: runs");
    user.types("/background output bg_1")
        .waits_for("[bg_1: runs");
    user.types("/preview all").waits_for("Would stop");
    user.presses(CTRL_D);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    assert_in_order(
        &screen,
        &[
            "still running: bg_1 (echo up; sleep 600) · Ctrl-D or /quit again stops this work and leaves",
            "stopping bg_1: ",
            "stopped by you",
            "stopped by SIGTERM",
        ],
    );
}

#[test]
fn next_chat_names_kept_background_work() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes --keep-background");
    user.types("server").waits_for("It is up.");
    user.types("hang").waits_for("This sentence");
    let mut user = user;
    user.chat.signal(Signal::TERM);
    let id = {
        let shown = within(FACT_MAX, || {
            let screen = user.screen();
            let at = screen.find("sessions resume ")? + "sessions resume ".len();
            screen
                .get(at..)?
                .split_whitespace()
                .next()
                .map(str::to_owned)
        });
        shown.unwrap_or_else(|| panic!("{}", user.screen()))
    };
    user.waits_for("bg_1 keeps running: echo up; sleep 600");
    user.waits_for("to stop it: allstop stop ");
    assert_eq!(user.chat.end(FACT_MAX).code, 143);
    assert!(!place.leftovers().is_empty());
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let user = ChatUser::start(&place, resumed);
    user.waits_for("bg_1 of an earlier process still runs: echo up; sleep 600");
    user.types("/preview all")
        .waits_for("Would stop")
        .waits_for("(bg_1)");
    user.types("/background").waits_for(" · output in ");
    user.types("short").waits_for("A short answer.");
    user.waits_for("in the background: bg_1 (echo up; sleep 600)");
    user.presses("/stop b\t")
        .waits_for("› /stop bg_1")
        .presses("\r");
    user.waits_for("bg_1 has ended: stopped");
    user.types("/stop bg_1").waits_for("already ended");
    user.presses(CTRL_D);
    user.leaves_chat();
    let shown = place.sessions().args("show --json").arg(&id).end().ok();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let ended = &shown["background"][0]["ended"];
    assert_eq!(ended["state"], "stopped", "{shown:#}");
    assert_eq!(ended["how"], "sigterm", "{shown:#}");
}

/// Regression: the stop ignored work that an earlier process had left running on purpose, and reported that no work was
/// found.
#[test]
fn a_stop_of_all_covers_what_an_earlier_chat_left() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes --keep-background");
    user.types("server").waits_for("It is up.");
    user.waits_until_idle().presses(CTRL_D);
    user.waits_for("keeps running: echo up; sleep 600");
    assert_eq!(user.chat.end(FACT_MAX).code, 0);
    assert!(!place.leftovers().is_empty());
    let user = ChatUser::start(&place, place.allstop().args("sessions resume last"));
    user.waits_for("bg_1 of an earlier process still runs");
    user.types("/stop all").waits_for("conversation unchanged");
    let receipt = place.allstop().args("receipt last --json --store");
    let receipt = receipt.arg(place.store()).end().ok();
    let receipt: serde_json::Value = serde_json::from_str(&receipt.stdout).expect("JSON");
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    let proof = &receipt["items"][0]["verified"];
    assert_eq!(*proof, "process_group_empty", "{receipt:#}");
    let listed = place.allstop().args("ps --json").end().ok();
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let work = &listed["sessions"][0]["work"];
    assert_eq!(*work, serde_json::json!([]), "it is gone: {listed:#}");
    user.presses(CTRL_D);
    user.leaves_chat();
}

/// Regression: if a second stop joined a running stop, their common receipt was shown twice.
#[test]
fn a_second_stop_of_the_same_turn_shows_no_second_receipt() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes --grace 1s");
    user.types("stubborn");
    let begun = place.work().join("begun");
    eventually("the deaf command", || begun.exists().then_some(()));
    user.presses("\x1b").waits_for("stopping");
    user.types("/stop").waits_for("verified.");
    user.types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_eq!(screen.matches("verified.").count(), 1, "{screen}");
}

#[test]
fn a_stop_of_all_has_one_receipt() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("server").waits_for("It is up.");
    user.types("hang").waits_for("This sentence");
    user.types("/stop all").waits_for("bg_1 has ended: stopped");
    user.types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_eq!(
        screen.matches("the background work stopped by you").count(),
        1,
        "{screen}"
    );
    assert_in_order(&screen, &["background work stopped", "(bg_1)", "model"]);
}

#[test]
fn history_search_finds_substrings() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short, please").waits_for("A short answer.");
    user.types("/policy enqueue")
        .waits_for("policy enqueue from");
    user.presses("\x12ple")
        .waits_for("search: ple › short, please");
    user.presses("\r");
    user.waits_for_twice("A short answer.");
    user.presses(CTRL_D);
    user.leaves_chat();
}

#[test]
fn a_question_says_which_sub_agent_asks() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("delegate")
        .waits_for("asked by agent")
        .answers("y");
    user.waits_for("Done by another.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    let asked = [
        "? Allow shell: echo x > touched",
        "asked by agent: touch the file (call_",
    ];
    assert_in_order(&screen, &asked);
}

#[test]
fn a_call_of_a_sub_agent_is_stopped_by_the_name_of_its_tool() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("someone else");
    let begun = place.work().join("sleeps");
    let begun = within(FACT_MAX, || begun.exists().then_some(()));
    assert!(begun.is_some(), "{}", user.screen());
    user.types("/preview shell").waits_for("shell: echo x");
    user.types("/stop shell").waits_for("stopped by SIGTERM");
    user.waits_for("That is that.").presses(CTRL_D);
    user.leaves_chat();
}

#[test]
fn of_two_questions_at_once_each_names_its_call() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("two others").waits_for("touch the file (call_");
    user.waits_for("touch it too (call_")
        .waits_for(": [y]es, once");
    let calls = ["call_1_1/call_1_1", "call_1_2/call_1_1"];
    let asks_of = |call: &str| format!("{call}: [y]es, once");
    let is_second_first = user.screen().contains(&asks_of(calls[1]));
    user.types("y").waits_for("yes, once (call_");
    // The screen may show the choices of the first question for a moment longer.
    let next = calls[usize::from(!is_second_first)];
    user.waits_for(&asks_of(next)).types("y");
    user.waits_for("Done by both.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    let question = "? Allow shell: echo x > touched (call_";
    assert_eq!(screen.matches(question).count(), 2, "{screen}");
}

#[test]
fn chat_stops_one_background_command_and_undoes_a_turn() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("server").waits_for("It is up.");
    user.types("/stop bg_1").waits_for("stopped by SIGTERM");
    user.types("/undo").waits_for("turn 1 is undone");
    user.types("/history")
        .waits_for("the conversation is empty");
    user.types("/unod").waits_for("did you mean /undo?");
    user.presses(CTRL_D);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
}

#[test]
fn a_question_is_answered_or_taken_away_by_a_stop() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("touch it")
        .waits_for("[y]es, once")
        .presses(CTRL_C);
    user.waits_for("withdrawn")
        .waits_for("stopped by you (Ctrl-C)");
    assert!(!place.work().join("touched").exists());
    user.types("touch it").waits_for("[y]es, once").types("y");
    user.waits_for("It is done.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(place.work().join("touched").exists(), "{screen}");
}

#[test]
fn a_signal_stops_all_of_it_and_gives_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let mut user = ChatUser::start_chat(&place, "--yes");
        user.types("server").waits_for("It is up.");
        user.types("hang").waits_for("This sentence");
        user.chat.signal(signal);
        let (ended, screen) = user.leaves_chat();
        assert_eq!(ended.code, code, "{screen}");
        assert_in_order(&screen, &["stopped by SIG"]);
    }
}

#[test]
fn conversation_is_kept_and_private() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short").waits_for("A short answer.");
    let other = place
        .allstop()
        .arg("chat")
        .arg("--store")
        .arg(place.store());
    let id = place.only_session();
    let refused = other
        .arg("--model")
        .arg(place.script(SCRIPT))
        .arg("--session")
        .arg(&id);
    let refused = refused.end();
    assert_eq!(refused.code, 1, "{refused:#?}");
    let pid = user.chat.pid();
    assert!(
        refused.stderr.contains(&format!("in use by process {pid}")),
        "{refused:#?}"
    );
    user.presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(screen.contains("allstop sessions resume"), "{screen}");

    let file = place.path("store.db.history");
    let mode = std::fs::metadata(file)
        .expect("a history")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let user = ChatUser::start(&place, resumed);
    user.waits_for("A short answer.")
        .presses(UP)
        .waits_for("› short")
        .presses("\r");
    user.waits_for_twice("A short answer.");
    user.presses(CTRL_D);
    user.leaves_chat();
}

/// The chat prints a command that continues the session. The test parses this command like a shell.
#[test]
fn the_printed_command_continues_the_session() {
    let place = Place::new();
    let script = place.file("it's a script.yaml", SCRIPT);
    let script = format!("script:{}", script.display());
    let user = ChatUser::start(&place, place.allstop().arg("chat"));
    user.types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    let run = place.run().arg("--model").arg(&script).arg("hello");
    let run = run.env("TERM", "xterm");
    let terminal = Terminal::new();
    run.on_terminal(terminal.line()).end();
    let shown = terminal.all_shown();
    for screen in [screen, shown] {
        let (_, printed) = screen.split_once("to continue:").expect("a hint");
        let printed = printed.replace(['\n', '\r'], "").replace("\u{1b}[0m", "");
        let printed = printed
            .trim_start()
            .strip_prefix("allstop")
            .expect("a command");
        assert!(!printed.contains("--model"), "it is remembered: {printed}");
        let script = format!("exec \"$0\" {printed} short");
        let ended = place.allstop().by_script(&script).end().ok();
        assert_eq!(ended.stdout, "A short answer.\n", "{script}: {ended:#?}");
    }
}

#[test]
fn a_chat_follows_its_configuration() {
    let place = Place::new();
    let file = place.file(
        "chat.toml",
        "[session]
follow_up = 'enqueue'
on_background_end = 'wake'
compact_above_tokens = 1
compact_keeps_turns = 1
",
    );
    let config = format!("--yes --config {}", file.display());
    let user = ChatUser::start_chat(&place, &config);
    user.types("/policy").waits_for("enqueue");
    user.types("wake").waits_for("bg_1 has ended");
    user.waits_for("I heard of its end.");
    user.types("short").waits_for("A short answer.");
    user.waits_for("older turns were summarised");
    user.presses(CTRL_D);
    user.leaves_chat();
    let shown = place.sessions().arg("show").arg(place.only_session()).end();
    for text in ["(started by the end of", "a summary replaces"] {
        assert!(shown.stdout.contains(text), "{}", shown.stdout);
    }
}

/// The turn is already committed when its `turn_end` hook is stopped. So the answer is printed nevertheless.
#[test]
fn piped_chat_prints_an_answer_although_its_hook_is_stopped() {
    let place = Place::new();
    let hook = format!("touch ready; exec {}", place.sleeper());
    let config = format!("[[hooks]]\non = \"turn_end\"\ncommand = \"{hook}\"\n");
    let config = place.file("allstop.toml", config);
    let chat = place.allstop().args("chat --yes short --store");
    let chat = chat.arg(place.store()).arg("--config").arg(config);
    let chat = chat.arg("--model").arg(place.script(SCRIPT));
    let running = chat.stdin(std::process::Stdio::piped()).start();
    let ready = place.work().join("ready");
    eventually("the hook", || ready.exists().then_some(()));
    let ended = running.end_by(Signal::INT);
    assert_eq!(ended.stdout, "A short answer.\n", "{ended:#?}");
    assert!(
        ended.stderr.contains("sleep"),
        "the hook is named: {ended:#?}"
    );
    place.assert_nothing_runs();
}

#[test]
fn without_a_terminal_each_line_is_a_message() {
    let place = Place::new();
    let chat = || {
        let chat = place
            .allstop()
            .args("chat --yes --store")
            .arg(place.store());
        chat.arg("--model").arg(place.script(SCRIPT))
    };
    let lines = place.file("lines", "short\n\nshort again\r\nserver\n");
    let lines = std::fs::File::open(lines).expect("a file");
    let ended = chat().stdin(lines).end().ok();
    assert_eq!(
        ended.stdout,
        "A short answer.\nA short answer.\nIt is up.\n"
    );
    assert!(ended.stderr.contains("stopping bg_1: "), "{ended:#?}");
    place.assert_nothing_runs();

    let lines = place.file("lines", "no reply for this\nshort\n");
    let lines = std::fs::File::open(lines).expect("a file");
    let ended = chat().stdin(lines).end();
    assert_eq!((ended.code, &*ended.stdout), (1, ""), "{ended:#?}");

    let ended = chat().arg("--json").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("allstop run --session"), "{ended:#?}");
}
