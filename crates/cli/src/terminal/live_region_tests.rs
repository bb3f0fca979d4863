//! The region on an emulator whose window changes.

use super::*;

const STYLE: Style = Style::new(false, true);

/// The window loses the row of the status, so that the cursor stands in the last one: the row above it stays.
#[test]
fn rows_above_stay_when_a_lower_window_cuts_the_status() {
    let terminal = |rows| RegionTerminal {
        columns: 40,
        rows,
        narrowing: Narrowing::Breaks,
    };
    let input_line = InputLine {
        above: Vec::new(),
        prefix: styled!["> "],
        text: "typed".to_owned(),
        cursor: 5,
        style: STYLE,
        is_echoed: false,
    };
    let status = StatusLine {
        items: Vec::new(),
        style: STYLE,
    };
    let parts = RegionParts {
        open: None,
        running: &[],
        input_line: Some(&input_line),
        status: Some(&status),
    };
    let frame = |rows| RegionFrame::new(&parts, Instant::now(), terminal(rows));
    let mut emulator = vt100::Parser::new(6, 40, 0);
    let mut show = |text: &str, rows: u16| {
        emulator.screen_mut().set_size(rows, 40);
        emulator.process(text.replace('\n', "\r\n").as_bytes());
        emulator.screen().contents()
    };
    let mut region = LiveRegion::default();
    let mut text = "one\ntwo\nthree\n".to_owned();
    region.draw(frame(6), false, &mut text);
    assert_eq!(show(&text, 6), "one\ntwo\nthree\n> typed");
    // The cursor's row is the last one.
    assert_eq!(show("", 4), "one\ntwo\nthree\n> typed");
    let mut text = String::new();
    region.erase(terminal(4), false, &mut text);
    assert_eq!(show(&text, 4), "one\ntwo\nthree");
    let mut text = String::new();
    region.draw(frame(4), false, &mut text);
    assert_eq!(show(&text, 4), "two\nthree\n> typed");
}

#[test]
fn rows_of_running_work_are_narrower_than_the_terminal() {
    let now = Instant::now();
    let running = RunningLine {
        label: styled!["stopping…"],
        clock: RunningClock::ForceAt(now + Duration::from_secs(2)),
        progress: CallProgress::checked(1.0, Some(2.0), Some("half of it is done by now")),
        tail: vec![styled!["a line of output that is long enough to be cut"]],
        style: STYLE,
    };
    let rows = |columns| {
        let mut rows = Vec::new();
        let running = std::slice::from_ref(&running);
        add_running(running, now, (columns, 24), &mut rows);
        rows
    };
    for columns in 10..60 {
        let widest = rows(columns).iter().map(|row| row.width).max();
        assert!(widest < Some(columns), "{columns}: {:#?}", rows(columns));
    }
    let texts: Vec<_> = rows(38).into_iter().map(|row| row.text).collect();
    assert_eq!(
        texts,
        [
            "⠋ stopping…  force in 2.0 s · Ctrl-C…",
            "  ████░░░░  50 %  half of it is done…",
            "  │ a line of output that is long en…",
        ]
    );
}
