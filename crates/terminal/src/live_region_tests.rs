//! Tests the region on an emulator whose window changes.

use super::*;

const STYLE: Style = Style::new(false, true);

/// The window loses the row of the status, so that the cursor is in the last row. The row above the cursor stays.
#[test]
fn rows_above_stay_when_a_lower_window_cuts_the_status() {
    let terminal = |rows| RegionTerminal {
        margin: Margin::default(),
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
        narrow: None,
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

/// The terminal shows a row that wraps as two rows, and the region counts one row. Each new frame would therefore leave
/// one row on the screen.
#[test]
fn rows_of_work_are_narrower_than_every_window() {
    let now = Instant::now();
    let clocks = [
        RunningClock::Since(now),
        RunningClock::ForceAt(now + Duration::from_millis(1_700)),
        RunningClock::ForceAt(now),
    ];
    for columns in 2..130 {
        for (clock, is_coloured) in clocks
            .iter()
            .flat_map(|clock| [(clock, true), (clock, false)])
        {
            let line = RunningLine {
                label: styled!["stopping… 你好 and a long name of the work that is stopped"],
                clock: *clock,
                progress: Some(RunningProgress {
                    share: Some(0.5),
                    amounts: "1/2".to_owned(),
                    message: Some("你好 half of it is done".into()),
                }),
                tail: vec![styled![
                    "你好 output that is longer than a row of most windows, really"
                ]],
                style: Style::new(is_coloured, true),
            };
            let mut rows = Vec::new();
            add_running(std::slice::from_ref(&line), now, columns, 24, &mut rows);
            assert_eq!(rows.len(), 3);
            let widest = rows.iter().map(Styled::width).max();
            assert!(widest < Some(columns), "{columns}: {rows:#?}");
        }
    }
    let stopping = RunningLine {
        label: styled!["stopping…"],
        clock: clocks[1],
        progress: None,
        tail: Vec::new(),
        style: STYLE,
    };
    let shown = |columns| stopping.draw(now, columns).shown().to_owned();
    assert!(shown(80).ends_with("stopping…  force in 1.7 s · Ctrl-C forces now"));
    assert!(shown(38).ends_with("stopping…  force in 1.7 s"));
}
