//! Tests of the live view: the screen of a terminal, and the bytes in pipes.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::UnfinishedCall;
use allstop_core::receipt::{EndMethod, EndProof, Evidence, ItemState, NotStoppedReason};
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, Cause, CauseKind, Effect, FinishReason, TurnNumber, Usage};
use allstop_terminal::TestScreen;

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn environment() -> Environment {
    Environment::read(|name| match name {
        "TERM" => Some("xterm".into()),
        "LANG" => Some("C.UTF-8".into()),
        "NO_COLOR" => Some("1".into()),
        _ => None,
    })
}

fn options() -> LiveOptions {
    LiveOptions {
        environment: environment(),
        answers: true,
    }
}

fn delta(text: &str) -> AgentEvent {
    AgentEvent::TextDelta { text: text.into() }
}

fn step(step: u32) -> AgentEvent {
    let model = "gpt-x".into();
    AgentEvent::StepStarted {
        step,
        model,
        is_guarded: false,
    }
}

fn answered(text: &str) -> AgentEvent {
    let text = text.into();
    let finish = FinishReason::Done;
    AgentEvent::StepAnswered {
        step: 1,
        text,
        calls: Arc::default(),
        finish,
    }
}

fn retry() -> AgentEvent {
    AgentEvent::RetryScheduled {
        step: 1,
        attempt: 1,
        delay_ms: 250,
        error: "connection\u{1b}[2J reset".into(),
    }
}

fn requested(id: &str, command: &str) -> AgentEvent {
    AgentEvent::ToolRequested {
        call_id: CallId::from(id),
        name: "shell".into(),
        arguments: serde_json::json!({ "command": command }).into(),
    }
}

fn started(id: &str) -> AgentEvent {
    AgentEvent::ToolStarted {
        call_id: CallId::from(id),
        name: "shell".into(),
        effect: Effect::Irreversible,
    }
}

fn finished(id: &str, outcome: CallOutcome, content: &str) -> AgentEvent {
    AgentEvent::ToolFinished {
        call_id: CallId::from(id),
        name: "shell".into(),
        outcome,
        after_ms: 12,
        content: content.into(),
        exit_code: None,
        change: None,
        left: None,
    }
}

/// End of a command, with its exit code.
fn exited(id: &str, code: i32, content: &str) -> AgentEvent {
    let mut end = finished(id, CallOutcome::Succeeded, content);
    if let AgentEvent::ToolFinished { exit_code, .. } = &mut end {
        *exit_code = Some(code);
    }
    end
}

fn still_running() -> ItemState {
    ItemState::StillRunning {
        why: NotStoppedReason::OutsideExtent,
    }
}

fn ended(stop_reason: StopReason) -> AgentEvent {
    AgentEvent::TurnEnded {
        turn: TurnNumber(1),
        stop_reason,
        cause: None,
        usage: Usage::default(),
        unfinished: Vec::new(),
        lost: None,
    }
}

/// Output of the view in two pipes: standard output and standard error.
fn piped(show: impl FnOnce(&mut LiveView)) -> (String, String) {
    let [(out, stdout), (err, stderr)] = [(); 2].map(|()| {
        let (reader, writer) = std::io::pipe().unwrap();
        let files: [std::os::fd::OwnedFd; 2] = [reader.into(), writer.into()];
        let [reader, writer] = files.map(File::from);
        (reader, writer)
    });
    let output = OutputStreams::new(stdout, stderr).unwrap();
    show(&mut LiveView::new(&output, &options()));
    output.flush(LONG);
    drop(output);
    let read = |file| std::io::read_to_string::<File>(file).unwrap();
    (read(out), read(err))
}

/// Last screen of a terminal that shows the view.
fn on_screen(show: impl FnOnce(&mut LiveView, &mut TestScreen)) -> String {
    let mut screen = TestScreen::open(24, 60);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let mut live = LiveView::new(&output, &options());
    show(&mut live, &mut screen);
    output.flush(LONG);
    screen.contents()
}

#[test]
fn into_pipes_go_whole_answers_and_short_lines() {
    let (stdout, stderr) = piped(|live| {
        for event in [
            step(1),
            delta("half an ans"),
            retry(),
            delta("I will "),
            delta("look.\u{1b}"),
            answered("I will look.\u{1b}"),
            requested("a", "ls -l\nrm x"),
            started("a"),
            requested("b", "false"),
            started("b"),
            finished("b", CallOutcome::Failed, "\nexit code 1\nmore"),
            finished("a", CallOutcome::Succeeded, "fine"),
            requested("c", "rm -rf x"),
            finished("c", CallOutcome::Denied, "no"),
            step(2),
            delta("Done."),
            answered("Done."),
            ended(StopReason::Completed),
        ] {
            live.event(&event);
        }
        live.end(Some("Done."));
    });
    assert_eq!(
        stdout, "I will look.\u{1b}\nDone.\n",
        "what the model said, whole"
    );
    insta::assert_snapshot!(stderr);
}

#[test]
fn a_refused_answer_is_in_no_file() {
    let (stdout, _) = piped(|live| {
        for event in [step(1), answered("Let me see."), requested("a", "ls")] {
            live.event(&event);
        }
        live.event(&step(2));
        live.event(&answered("a secret"));
        live.event(&ended(StopReason::Guardrail));
        live.end(None);
    });
    assert_eq!(stdout, "Let me see.\n");
}

#[test]
fn an_answer_of_which_all_events_were_missed_is_printed() {
    let (stdout, _) = piped(|live| {
        live.event(&step(1));
        live.event(&answered("one"));
        live.missed(100);
        live.end(Some("two"));
    });
    assert_eq!(stdout, "one\ntwo\n");
    let (stdout, _) = piped(|live| {
        live.event(&step(1));
        live.event(&answered("one"));
        live.event(&ended(StopReason::Completed));
        live.missed(100);
        live.end(Some("one"));
    });
    assert_eq!(stdout, "one\n");
}

#[test]
fn every_ending_of_a_call_has_a_line() {
    let (_, stderr) = piped(|live| {
        for (id, outcome) in [
            ("a", CallOutcome::Succeeded),
            ("b", CallOutcome::Failed),
            ("c", CallOutcome::Denied),
            ("d", CallOutcome::Stopped),
            ("e", CallOutcome::TimedOut),
            ("f", CallOutcome::Unknown),
        ] {
            live.event(&requested(id, id));
            live.event(&finished(id, outcome, "what the model is told"));
        }
        let mut deaf = finished("i", CallOutcome::Unknown, "what the model is told");
        if let AgentEvent::ToolFinished { left, .. } = &mut deaf {
            *left = Some(still_running());
        }
        live.event(&requested("i", "deaf to its timeout"));
        live.event(&deaf);
        live.event(&requested("g", "sleep 600"));
        live.event(&started("g"));
        live.event(&requested("j", "cat /dev/hung"));
        live.event(&started("j"));
        live.event(&requested("h", "never started"));
        let cause = Cause::new(CauseKind::User).detail("ctrl-c");
        live.event(&AgentEvent::StopHeard { cause });
        let stopped = ItemState::Stopped {
            how: EndMethod::Sigterm,
            after_ms: Duration::from_millis(5).into(),
            evidence: Evidence::verified(EndProof::ProcessGroupEmpty),
        };
        let left = [("g", stopped), ("j", still_running())];
        let left = left.map(|(id, state)| UnfinishedCall {
            call_id: CallId::from(id),
            state,
        });
        let mut end = ended(StopReason::Cancelled);
        if let AgentEvent::TurnEnded { unfinished, .. } = &mut end {
            unfinished.extend(left);
        }
        live.event(&end);
        live.end(None);
    });
    insta::assert_snapshot!(stderr);
}

#[test]
fn answer_that_was_cut_off_is_marked() {
    let (stdout, stderr) = piped(|live| {
        let (text, finish) = ("Once upon".into(), FinishReason::Length);
        live.event(&AgentEvent::StepAnswered {
            step: 1,
            text,
            calls: Arc::default(),
            finish,
        });
        live.event(&ended(StopReason::Completed));
        live.end(None);
    });
    assert_eq!(stdout, "Once upon\n");
    assert_eq!(
        stderr,
        "✗ the answer was cut off at the limit of output tokens\n"
    );
}

#[test]
fn a_terminal_shows_the_answer_as_it_comes_and_what_runs() {
    let screen = on_screen(|live, screen| {
        live.event(&step(1));
        screen.wait_for("step 1: gpt-x");
        live.event(&delta("Hel"));
        screen.wait_for("Hel");
        assert!(
            !screen.contents().contains("gpt-x"),
            "the text stands there now"
        );
        live.event(&delta("lo \u{1b}[31m"));
        live.event(&answered("Hello \u{1b}[31mred"));
        for (id, command) in [("a", "make -j"), ("b", "cargo test")] {
            live.event(&requested(id, command));
            live.event(&started(id));
        }
        screen.wait_for("shell: make -j");
        screen.wait_for("shell: cargo test");
        live.event(&finished("b", CallOutcome::Succeeded, ""));
        screen.wait_for("✓ shell: cargo test  12 ms");
        live.event(&finished("a", CallOutcome::Failed, "no rule"));
        live.event(&ended(StopReason::Completed));
        live.end(None);
    });
    insta::assert_snapshot!(screen);
}

#[test]
fn spinning_lines_leave_nothing_behind() {
    let screen = on_screen(|live, screen| {
        for number in 0..20 {
            let id = format!("call {number}");
            live.event(&requested(&id, &format!("{number} {}", "x".repeat(200))));
            live.event(&started(&id));
        }
        screen.wait_for("and 13 more");
        // The screen changes without new events, because the clocks of the calls run.
        let before = screen.contents();
        screen.wait_until(|now| now != before);
        for number in 0..20 {
            live.event(&finished(
                &format!("call {number}"),
                CallOutcome::Succeeded,
                "",
            ));
        }
        live.event(&ended(StopReason::Completed));
    });
    for (number, line) in screen.lines().enumerate() {
        assert!(
            line.starts_with(&format!("▎ ✓ shell: {number} xxx")),
            "{screen}"
        );
    }
    assert_eq!(screen.lines().count(), 20, "{screen}");
}

#[test]
fn after_a_retry_what_was_streamed_is_marked() {
    let screen = on_screen(|live, _| {
        for event in [
            step(1),
            delta("The answer is 41"),
            retry(),
            delta("The answer is 42"),
            answered("The answer is 42"),
        ] {
            live.event(&event);
        }
    });
    insta::assert_snapshot!(screen);
}

#[test]
fn missed_deltas_come_with_the_whole_answer() {
    let screen = on_screen(|live, _| {
        live.event(&step(1));
        live.event(&delta("one "));
        live.missed(3);
        live.event(&delta("five "));
        live.event(&answered("one two three four five six"));
        live.event(&step(2));
        live.missed(2);
        live.end(Some("the last words"));
    });
    assert_eq!(screen, "one two three four five six\nthe last words");
}

#[test]
fn a_missed_retry_is_noticed_by_its_answer() {
    let screen = on_screen(|live, _| {
        live.event(&step(1));
        live.event(&delta("wrong"));
        live.missed(9);
        live.event(&answered("right"));
    });
    insta::assert_snapshot!(screen);
}

#[test]
fn slow_terminal_blocks_no_caller() {
    let mut screen = TestScreen::open(24, 80);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let mut live = LiveView::new(&output, &options());
    let digits: Arc<str> = "0123456789\n".repeat(100).into();
    let count = 2_000;
    live.event(&step(1));
    for _ in 0..count {
        live.event(&AgentEvent::TextDelta {
            text: Arc::clone(&digits),
        });
    }
    // So far, the terminal was not read, so parts of the answer were dropped. The whole answer now fills the gaps.
    live.event(&answered(&digits.repeat(count)));
    let written = screen.read_until_flushed(&output);
    // Control sequences that erase the model's live line may precede the first line of the answer.
    let lines = written.lines().filter(|line| line.ends_with("0123456789"));
    assert_eq!(lines.count(), 100 * count, "each line once");
}

#[test]
fn without_answers_only_the_calls_are_shown() {
    let mut screen = TestScreen::open(24, 80);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let options = LiveOptions {
        answers: false,
        ..options()
    };
    let mut live = LiveView::new(&output, &options);
    for event in [step(1), delta("no"), answered("no"), requested("a", "ls")] {
        live.event(&event);
    }
    live.event(&finished("a", CallOutcome::Succeeded, ""));
    live.end(Some("no"));
    output.flush(LONG);
    assert_eq!(screen.contents(), "▎ ✓ shell: ls  12 ms");
}

#[test]
fn a_command_that_failed_and_work_that_goes_on_do_not_look_done() {
    let (_, said) = piped(|live| {
        live.event(&requested("a", "a"));
        // A line about background work follows, so the exit code is not in the last line.
        live.event(&exited("a", 3, "some output\n[exit code 3]\nbg_1 runs on"));
        for (id, content) in [
            ("b", "[killed by signal 9]"),
            (
                "c",
                "bg_1 runs in the background; its output goes to /tmp/x",
            ),
            (
                "d",
                "[exit code 3]\nwas printed by a command that went well",
            ),
        ] {
            live.event(&requested(id, id));
            live.event(&finished(id, CallOutcome::Succeeded, content));
        }
    });
    let ends = [
        "12 ms, exit code 3",
        "12 ms, killed by signal 9",
        "12 ms, bg_1 runs in the background",
        "shell: d  12 ms",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), ends.len(), "{said}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{line:?} does not end with {end:?}");
    }
    let is_good = |line: &&str| line.starts_with('✓') || line.starts_with("ok");
    assert_eq!(
        lines.iter().filter(|line| is_good(line)).count(),
        1,
        "{said}"
    );
}

/// The label identifies a call, so it stays. On a narrow terminal, the rest of the row moves below the label.
#[test]
fn label_of_background_work_stays_on_a_narrow_terminal() {
    for (columns, expected) in [
        (
            40,
            "▎ ▶ shell: sleep 600 && echo and so on…\n▎   12 ms, bg_1 runs in the background",
        ),
        (
            62,
            "▎ ▶ shell: sleep 600 && …  12 ms, bg_1 runs in the background",
        ),
    ] {
        let mut screen = TestScreen::open(24, columns);
        let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
        let mut live = LiveView::new(&output, &options());
        live.event(&requested("a", "sleep 600 && echo and so on and on"));
        let said = "bg_1 runs in the background; its output goes to /tmp/x";
        live.event(&finished("a", CallOutcome::Succeeded, said));
        live.event(&AgentEvent::BackgroundStarted {
            id: "bg_2".into(),
            name: "a command whose name has more letters than the row".into(),
        });
        live.end(None);
        output.flush(LONG);
        let shown = screen.contents();
        assert!(shown.starts_with(expected), "{shown}");
        let last = shown.lines().last().unwrap();
        assert!(
            last.starts_with("▎ ▶ bg_2 runs in the background: a") && last.ends_with('…'),
            "{shown}"
        );
    }
}

#[test]
fn answer_goes_on_below_what_interrupts_it() {
    let screen = on_screen(|live, screen| {
        live.event(&step(1));
        live.event(&delta("One paragraph has two par"));
        screen.wait_for("two par");
        live.interrupt();
        live.note(TextRole::Dim, Symbol::Good, "something else");
        live.event(&delta("ts.\n\nThe end."));
        live.event(&answered("One paragraph has two parts.\n\nThe end."));
        live.event(&ended(StopReason::Completed));
    });
    assert_eq!(
        screen,
        "One paragraph has two\n▎ ✓ something else\nparts.\n\nThe end."
    );
}
