//! A conversation, with the test as the user at the terminal.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::person::{CTRL_C, CTRL_D, Person, SCRIPT, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, Signal, eventually};

const UP: &str = "\x1b[A";

#[test]
fn ctrl_c_stops_a_turn_in_mid_stream_and_the_chat_goes_on() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("hang").sees("This sentence");
    person.presses("half").sees("› half").presses(CTRL_C);
    person
        .sees("stopped by you (Ctrl-C)")
        .sees("Nothing is left running");
    person
        .sees("› half")
        .presses("\x15")
        .says("short")
        .sees("A short answer.");
    person.presses(CTRL_D);
    let (ended, screen) = person.left();
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
    let person = Person::sits_down(&place, "--yes --grace 60s");
    person.says("stubborn");
    let begun = within(FACT_MAX, || {
        place.work().join("begun").exists().then_some(())
    });
    assert!(begun.is_some(), "{}", person.screen());
    person.presses(CTRL_C).sees("Ctrl-C forces now");
    person.presses_until(CTRL_C, "forced");
    person.sees("stopped by SIGKILL").presses(CTRL_D);
    let (ended, screen) = person.left();
    assert_eq!(ended.code, 0, "{screen}");
}

/// Only the hook still runs. A preview lists it, and leaving the chat ends and names it.
#[test]
fn a_hook_that_is_told_of_a_stopped_turn_is_listed_and_ended_by_leaving() {
    let place = Place::new();
    let hook = format!("touch ready; exec {}", place.sleeper());
    let config = format!("[[hooks]]\non = \"stop\"\ncommand = \"{hook}\"\n");
    let config = place.file("allstop.toml", config);
    let person = Person::sits_down(&place, &format!("--config {}", config.display()));
    person.says("hang").sees("This sentence").presses(CTRL_C);
    person.sees("stopped by you (Ctrl-C)");
    let ready = place.work().join("ready");
    eventually("the hook", || ready.exists().then_some(()));
    person.says("/preview all").sees("Would stop").sees("hook");
    person.presses(CTRL_D);
    person.sees("the session was closed").sees("✓ hook");
    drop(person.left());
}

#[test]
fn escape_stops_the_turn_and_the_last_session_goes_on() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("hang").sees("This sentence").presses("\x1b");
    person.sees("stopped by you (Esc)");
    person.says("short").sees("A short answer.").presses(CTRL_D);
    drop(person.left());
    let person = Person::sits_down(&place, "--continue");
    person.sees("A short answer.").presses(CTRL_D);
    drop(person.left());
}

#[test]
fn under_interrupt_a_follow_up_takes_the_place_of_the_turn() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("hang").sees("This sentence");
    person.says("short").sees("A short answer.").presses(CTRL_D);
    let (_, screen) = person.left();
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
fn under_enqueue_a_follow_up_waits_and_under_reject_it_is_not_taken() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--policy enqueue");
    person.says("hang").sees("This sentence");
    person.says("short").sees("waits: short");
    person.says("/policy reject").sees("policy reject");
    person
        .says("more")
        .sees("not sent: a turn is running")
        .sees("› more");
    // The input line reappears. After the stop of the turn, the queued message is on the line too.
    person
        .presses(CTRL_C)
        .sees("stopped by you")
        .sees("the message that waited is on the line again")
        .sees("› short");
    person.presses("\x15\x08\x15").presses(CTRL_D);
    let (_, screen) = person.left();
    assert_in_order(&screen, &["› hang", "stopped by you"]);
    assert!(!screen.contains("A short answer."), "{screen}");
}

/// The keeper is gone, so the result of the work is unknown.
#[test]
fn background_work_that_kills_its_keeper_has_an_unknown_end() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes");
    person.says("orphan").sees("bg_1 has ended: unknown");
    person.presses(CTRL_D);
    let (ended, screen) = person.left();
    assert_eq!(ended.code, 0, "{screen}");
    place.assert_nothing_runs();
}

#[test]
fn a_shell_outlives_turns_and_is_stopped_with_a_receipt_when_the_chat_is_left() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes");
    person.says("server").sees("It is up.");
    for _ in 0..3 {
        person.says("short");
    }
    person.says("/background").sees("bg_1: runs");
    person.says("/background output bg_1").sees("[bg_1: runs");
    person.says("/preview all").sees("Would stop");
    person.presses(CTRL_D);
    let (ended, screen) = person.left();
    assert_eq!(ended.code, 0, "{screen}");
    assert_in_order(
        &screen,
        &[
            "still running: bg_1 (echo up; sleep 600) · Ctrl-D or /quit again stops it and leaves",
            "bg_1 still runs, and is stopped",
            "stopped by you",
            "stopped by SIGTERM",
        ],
    );
}

#[test]
fn background_work_is_left_running_on_request_and_named_by_the_next_chat() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes --keep-background");
    person.says("server").sees("It is up.");
    person.says("hang").sees("This sentence");
    let mut person = person;
    person.chat.signal(Signal::TERM);
    let id = {
        let shown = within(FACT_MAX, || {
            let screen = person.screen();
            let at = screen.find("sessions resume ")? + "sessions resume ".len();
            screen
                .get(at..)?
                .split_whitespace()
                .next()
                .map(str::to_owned)
        });
        shown.unwrap_or_else(|| panic!("{}", person.screen()))
    };
    person.sees("bg_1 runs on: echo up; sleep 600");
    person.sees("to stop it: allstop stop ");
    assert_eq!(person.chat.end(FACT_MAX).code, 143);
    assert!(!place.leftovers().is_empty());
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let person = Person::at(&place, resumed);
    person.sees("bg_1 of an earlier process still runs: echo up; sleep 600");
    person
        .says("/preview all")
        .sees("Would stop")
        .sees("(bg_1)");
    person.says("/background").sees(" · output in ");
    person.says("short").sees("A short answer.");
    person.sees("in the background: bg_1 (echo up; sleep 600)");
    person
        .presses("/stop b\t")
        .sees("› /stop bg_1")
        .presses("\r");
    person.sees("bg_1 has ended: stopped");
    person.says("/stop bg_1").sees("already ended");
    person.presses(CTRL_D);
    person.left();
    let shown = place.sessions().args("show --json").arg(&id).end().ok();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let ended = &shown["background"][0]["ended"];
    assert_eq!(ended["state"], "stopped", "{shown:#}");
    assert_eq!(ended["how"], "sigterm", "{shown:#}");
}

/// Regression: the stop ignored work that an earlier process had detached, and reported nothing to stop.
#[test]
fn a_stop_of_all_covers_what_an_earlier_chat_left() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes --keep-background");
    person.says("server").sees("It is up.").presses(CTRL_D);
    person.sees("runs on: echo up; sleep 600");
    assert_eq!(person.chat.end(FACT_MAX).code, 0);
    assert!(!place.leftovers().is_empty());
    let person = Person::at(&place, place.allstop().args("sessions resume last"));
    person.sees("bg_1 of an earlier process still runs");
    person.says("/stop all").sees("conversation unchanged");
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
    person.presses(CTRL_D);
    person.left();
}

/// Regression: the receipt of a stop appeared twice if another stop had joined it.
#[test]
fn a_second_stop_of_the_same_turn_shows_no_second_receipt() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes --grace 1s");
    person.says("stubborn");
    let begun = place.work().join("begun");
    eventually("the deaf command", || begun.exists().then_some(()));
    person.presses("\x1b").sees("stopping");
    person.says("/stop").sees("verified.");
    person.says("short").sees("A short answer.").presses(CTRL_D);
    let (_, screen) = person.left();
    assert_eq!(screen.matches("verified.").count(), 1, "{screen}");
}

#[test]
fn a_stop_of_all_has_one_receipt() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes");
    person.says("server").sees("It is up.");
    person.says("hang").sees("This sentence");
    person.says("/stop all").sees("bg_1 has ended: stopped");
    person.says("short").sees("A short answer.").presses(CTRL_D);
    let (_, screen) = person.left();
    assert_eq!(
        screen.matches("the background work stopped by you").count(),
        1,
        "{screen}"
    );
    assert_in_order(&screen, &["background work stopped", "(bg_1)", "model"]);
}

#[test]
fn what_was_typed_is_found_by_what_it_contains() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("short, please").sees("A short answer.");
    person.says("/policy enqueue").sees("policy enqueue from");
    person
        .presses("\x12ple")
        .sees("search: ple › short, please");
    person.presses("\r");
    person.sees_twice("A short answer.");
    person.presses(CTRL_D);
    person.left();
}

#[test]
fn a_question_says_which_sub_agent_asks() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("delegate").sees("asked by agent").says("y");
    person.sees("Done by another.").presses(CTRL_D);
    let (_, screen) = person.left();
    let asked = [
        "? Allow shell: echo x > touched",
        "asked by agent: touch the file (call_",
    ];
    assert_in_order(&screen, &asked);
}

#[test]
fn a_call_of_a_sub_agent_is_stopped_by_the_name_of_its_tool() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes");
    person.says("someone else");
    let begun = place.work().join("sleeps");
    let begun = within(FACT_MAX, || begun.exists().then_some(()));
    assert!(begun.is_some(), "{}", person.screen());
    person.says("/preview shell").sees("shell: echo x");
    person.says("/stop shell").sees("stopped by SIGTERM");
    person.sees("That is that.").presses(CTRL_D);
    person.left();
}

#[test]
fn of_two_questions_at_once_each_names_its_call() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("two others").sees("touch the file (call_");
    person.sees("touch it too (call_").sees(": [y]es, once");
    person.says("y").sees("yes, once (call_").says("y");
    person.sees("Done by both.").presses(CTRL_D);
    let (_, screen) = person.left();
    let question = "? Allow shell: echo x > touched (call_";
    assert_eq!(screen.matches(question).count(), 2, "{screen}");
}

#[test]
fn one_piece_of_background_work_is_stopped_alone_and_undo_takes_a_turn_back() {
    let place = Place::new();
    let person = Person::sits_down(&place, "--yes");
    person.says("server").sees("It is up.");
    person.says("/stop bg_1").sees("stopped by SIGTERM");
    person.says("/undo").sees("turn 1 is taken back");
    person.says("/history").sees("nothing was said yet");
    person.says("/unod").sees("did you mean /undo?");
    person.presses(CTRL_D);
    let (ended, screen) = person.left();
    assert_eq!(ended.code, 0, "{screen}");
}

#[test]
fn a_question_is_answered_or_taken_away_by_a_stop() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("touch it").sees("[y]es, once").presses(CTRL_C);
    person.sees("withdrawn").sees("stopped by you (Ctrl-C)");
    assert!(!place.work().join("touched").exists());
    person.says("touch it").sees("[y]es, once").says("y");
    person.sees("It is done.").presses(CTRL_D);
    let (_, screen) = person.left();
    assert!(place.work().join("touched").exists(), "{screen}");
}

#[test]
fn a_signal_stops_all_of_it_and_gives_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let mut person = Person::sits_down(&place, "--yes");
        person.says("server").sees("It is up.");
        person.says("hang").sees("This sentence");
        person.chat.signal(signal);
        let (ended, screen) = person.left();
        assert_eq!(ended.code, code, "{screen}");
        assert_in_order(&screen, &["stopped by SIG"]);
    }
}

#[test]
fn what_was_said_is_there_again_and_nobody_else_can_read_it() {
    let place = Place::new();
    let person = Person::sits_down(&place, "");
    person.says("short").sees("A short answer.");
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
    let pid = person.chat.pid();
    assert!(
        refused.stderr.contains(&format!("in use by process {pid}")),
        "{refused:#?}"
    );
    person.presses(CTRL_D);
    let (_, screen) = person.left();
    assert!(screen.contains("allstop sessions resume"), "{screen}");

    let file = place.path("store.db.history");
    let mode = std::fs::metadata(file)
        .expect("a history")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let person = Person::at(&place, resumed);
    person
        .sees("A short answer.")
        .presses(UP)
        .sees("› short")
        .presses("\r");
    person.sees_twice("A short answer.");
    person.presses(CTRL_D);
    person.left();
}

/// The command is read exactly as a shell reads it.
#[test]
fn the_printed_command_continues_the_session() {
    let place = Place::new();
    let script = place.file("it's a script.yaml", SCRIPT);
    let script = format!("script:{}", script.display());
    let person = Person::at(&place, place.allstop().arg("chat"));
    person.says("short").sees("A short answer.").presses(CTRL_D);
    let (_, screen) = person.left();
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
    let person = Person::sits_down(&place, &config);
    person.says("/policy").sees("enqueue");
    person.says("wake").sees("bg_1 has ended");
    person.sees("I heard of its end.");
    person.says("short").sees("A short answer.");
    person.sees("older turns were summarised");
    person.presses(CTRL_D);
    person.left();
    let shown = place.sessions().arg("show").arg(place.only_session()).end();
    for text in ["(it began by itself", "a summary stands in place"] {
        assert!(shown.stdout.contains(text), "{}", shown.stdout);
    }
}

/// The turn is committed, so a stop of its `turn_end` hook does not withhold the answer.
#[test]
fn without_a_terminal_an_answer_is_printed_though_its_hook_is_stopped() {
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
    assert!(
        ended.stderr.contains("bg_1 still runs, and is stopped"),
        "{ended:#?}"
    );
    place.assert_nothing_runs();

    let lines = place.file("lines", "no reply for this\nshort\n");
    let lines = std::fs::File::open(lines).expect("a file");
    let ended = chat().stdin(lines).end();
    assert_eq!((ended.code, &*ended.stdout), (1, ""), "{ended:#?}");

    let ended = chat().arg("--json").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("allstop run --session"), "{ended:#?}");
}
