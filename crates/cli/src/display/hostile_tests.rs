//! Sends untrusted text through every output path to a terminal. The text must not control the terminal, and must not
//! deceive its reader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::AgentEvent;
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::record::CallOutcome;
use allstop_core::terminal_text::is_unsafe;
use allstop_core::{CallId, Cause, CauseKind, Effect, Extent, Receipt, Timestamp};
use allstop_terminal::{
    Environment, InputLine, OutputPriority, OutputQueue, OutputStreams, RunningClock, RunningLine,
    RunningProgress, Style, TestScreen, TextRole, TextTable, styled,
};

use super::*;

const STYLE: Style = Style::new(true, true);

/// One character of each unsafe kind, and control sequences that Allstop itself never writes.
const HOSTILE: &str = "a\0\u{1}\u{7}\u{8}\u{b}\r\u{1b}[3J\u{1b}[5m\u{1b}]52;c;eA==\u{7}\u{1b}c\u{7f}\u{80}\u{85}\u{9b}5m\u{9d}\
    \u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{fff9}\u{fe00}\u{e0001}\u{e0041}\u{e0101}z";

/// The written text without Allstop's own control sequences, and with `\n` in place of `\r\n`.
fn without_ours(written: &str) -> String {
    let mut rest = written.replace("\r\n", "\n");
    for count in 1..600 {
        for ours in [
            format!("\u{1b}[{count}A"),
            format!("\u{1b}[{count}B"),
            format!("\r\u{1b}[{count}C"),
        ] {
            rest = rest.replace(&ours, "");
        }
    }
    // The mark of Allstop's own rows.
    for mark in ["▎", "|"] {
        rest = rest.replace(&format!("\u{1b}[94m{mark}\u{1b}[0m"), "");
    }
    for ours in ["?2026h", "?2026l"] {
        rest = rest.replace(&format!("\u{1b}[{ours}"), "");
    }
    for code in ["0", "1", "2", "7", "31", "32", "33"] {
        rest = rest.replace(&format!("\u{1b}[{code}m"), "");
    }
    // This control sequence erases a row and everything below the row.
    rest.replace("\r\u{1b}[2K\u{1b}[C\u{1b}[J\r", "")
}

#[track_caller]
fn check_harmless(way: &str, written: &str) {
    let rest = without_ours(written);
    let harm: Vec<char> = rest
        .chars()
        .filter(|c| is_unsafe(*c) && !matches!(c, '\n' | '\t'))
        .collect();
    assert!(harm.is_empty(), "{way}: {harm:?} in {written:?}");
}

/// The bytes that a terminal receives.
fn written(way: impl FnOnce(&OutputStreams)) -> String {
    let mut screen = TestScreen::open(50, 600);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    way(&output);
    screen.read_until_flushed(&output)
}

#[test]
fn no_way_to_a_terminal_lets_hostile_text_through() {
    type Way = fn(&OutputQueue);
    let ways: [(&str, Way); 7] = [
        ("an answer", |queue| {
            queue.answer(HOSTILE, OutputPriority::Required);
        }),
        ("lines", |queue| {
            queue.lines(HOSTILE, OutputPriority::Required);
        }),
        ("a part of a line", |queue| {
            queue.lines(styled!["file ", HOSTILE], OutputPriority::Required);
        }),
        ("painted", |queue| {
            queue.lines(
                STYLE.paint(TextRole::Alarm, HOSTILE),
                OutputPriority::Required,
            );
        }),
        ("a table", |queue| {
            let mut table = TextTable::default();
            table.row([styled![HOSTILE], styled![format_args!("{HOSTILE}")]]);
            queue.lines(table.render(), OutputPriority::Required);
        }),
        ("JSON", |queue| {
            queue.json(
                &serde_json::json!({ HOSTILE: HOSTILE }).to_string(),
                OutputPriority::Required,
            );
        }),
        ("the log", |queue| {
            let mut writer = queue.writer();
            std::io::Write::write_all(&mut writer, HOSTILE.as_bytes()).unwrap();
        }),
    ];
    for (name, way) in ways {
        check_harmless(name, &written(|output| way(output.stdout())));
    }
}

#[test]
fn lines_that_change_are_harmless() {
    let mut screen = TestScreen::open(50, 600);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    output.stdout().show_running(vec![RunningLine {
        label: styled!["running ", HOSTILE],
        clock: RunningClock::Since(Instant::now()),
        progress: Some(RunningProgress {
            share: Some(0.5),
            amounts: HOSTILE.to_owned(),
            message: Some(HOSTILE.into()),
        }),
        tail: vec![styled!["writes ", HOSTILE]],
        style: STYLE,
    }]);
    output.stdout().show_input_line(Some(InputLine {
        above: vec![styled!["waits ", HOSTILE]],
        prefix: styled!["asks ", HOSTILE],
        text: format!("{HOSTILE}typed"),
        cursor: 0,
        style: STYLE,
        narrow: None,
        is_echoed: false,
    }));
    screen.wait_for("typed");
    let written = screen.read_until_flushed(&output);
    assert!(
        written.contains("running a") && written.contains("waits a"),
        "{written:?}"
    );
    check_harmless("lines that change", &written);
}

#[test]
fn events_of_a_run_are_harmless() {
    let name = || HOSTILE.into();
    let id = || CallId::from(HOSTILE);
    let arguments = serde_json::json!({ "command": HOSTILE });
    let finished = |outcome| AgentEvent::ToolFinished {
        call_id: id(),
        name: name(),
        outcome,
        after_ms: 1,
        content: format!("{HOSTILE}\n[exit code {HOSTILE}]").into(),
        exit_code: None,
        change: None,
        left: None,
    };
    let events = [
        AgentEvent::StepStarted {
            step: 1,
            model: name(),
            is_guarded: false,
        },
        AgentEvent::TextDelta { text: name() },
        AgentEvent::RetryScheduled {
            step: 1,
            attempt: 1,
            delay_ms: 1,
            error: HOSTILE.into(),
        },
        AgentEvent::StepAnswered {
            step: 1,
            text: name(),
            finish: allstop_core::FinishReason::Done,
            calls: Arc::default(),
        },
        AgentEvent::ToolRequested {
            call_id: id(),
            name: name(),
            arguments: arguments.into(),
        },
        AgentEvent::ToolStarted {
            call_id: id(),
            name: name(),
            effect: Effect::Irreversible,
        },
        finished(CallOutcome::Failed),
        finished(CallOutcome::Succeeded),
        AgentEvent::BackgroundStarted {
            id: HOSTILE.into(),
            name: name(),
        },
        AgentEvent::StopHeard {
            cause: Cause::new(CauseKind::User).detail(HOSTILE).by(HOSTILE),
        },
    ];
    let environment = Environment::read(|name| (name == "TERM").then(|| "xterm".into()));
    let shown = written(|output| {
        let options = LiveOptions {
            environment,
            answers: true,
        };
        let mut live = LiveView::new(output, &options);
        for event in &events {
            live.event(event);
        }
        live.end(Some(HOSTILE));
    });
    check_harmless("a run", &shown);
    // In contrast to a terminal, a file receives the answer unchanged.
    let path = tempfile::tempdir().unwrap();
    let path = path.path().join("answer");
    let file = std::fs::File::create(&path).unwrap();
    let output = OutputStreams::new(file, std::fs::File::create("/dev/null").unwrap()).unwrap();
    output.stdout().answer(HOSTILE, OutputPriority::Required);
    output.flush(Duration::from_secs(20));
    assert_eq!(std::fs::read_to_string(path).unwrap(), HOSTILE);
}

#[test]
fn a_receipt_is_harmless() {
    let why = NotStoppedReason::NotConfirmed;
    let item = ReceiptItem {
        note: Some(HOSTILE.into()),
        ..ReceiptItem::new(
            ItemKind::ToolCall,
            HOSTILE,
            HOSTILE,
            ItemState::StillRunning { why },
        )
    };
    let request = allstop_core::receipt::StopInfo {
        stop_id: HOSTILE.into(),
        target: HOSTILE.into(),
        extent: Extent::Turn,
        cause: Cause::new(CauseKind::User).detail(HOSTILE).by(HOSTILE),
        requested_at: Timestamp::from_unix_ms(0),
    };
    let receipt = Receipt::of_preview(request, vec![item]);
    check_harmless("a receipt", render_receipt(&receipt, STYLE, 100).shown());
}
