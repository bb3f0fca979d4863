//! Tests of the picker: keys, and the lines that the picker shows after these keys.

use super::*;

fn candidate(number: usize, prompt: &str, folder: &str) -> SessionCandidate {
    SessionCandidate {
        id: SessionId::new(format!("01M82ZDK405NZBRRXREGE6S{number:03}")),
        number,
        prompt: prompt.to_owned(),
        facts: vec![
            "2 min ago".to_owned(),
            "gpt-x".to_owned(),
            folder.to_owned(),
        ],
    }
}

fn picker() -> SessionPicker {
    let prompts = ["Fix the tests", "Write a parser", "fix the docs", ""];
    let many = (5..=12).map(|number| candidate(number, "more", "~/other"));
    let first = prompts.iter().zip(1..);
    let first = first.map(|(prompt, number)| candidate(number, prompt, "~/src/Alpha"));
    SessionPicker::new(first.chain(many).collect())
}

/// Number of the session that Enter chooses after these keys.
fn chosen(keys: &[Key]) -> Option<usize> {
    let mut picker = picker();
    for key in keys {
        assert_eq!(picker.press(key.clone()), PickStep::Pending, "{key:?}");
    }
    match picker.press(Key::Enter) {
        PickStep::Chosen(id) => id.as_str()[23..].parse().ok(),
        step => {
            assert_eq!(step, PickStep::Pending);
            None
        }
    }
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Letter).collect()
}

#[test]
fn arrows_move_and_stay_within_the_list() {
    assert_eq!(chosen(&[]), Some(1));
    assert_eq!(chosen(&[Key::Up]), Some(1));
    assert_eq!(chosen(&[Key::Down, Key::Down]), Some(3));
    assert_eq!(chosen(&[Key::Down, Key::Down, Key::Up]), Some(2));
    assert_eq!(chosen(&[const { Key::Down }; 50]), Some(12));
}

#[test]
fn numbers_and_words_narrow_the_list() {
    assert_eq!(chosen(&typed("2")), Some(2));
    assert_eq!(chosen(&typed("1")), Some(1));
    assert_eq!(chosen(&typed("12")), Some(12));
    assert_eq!(chosen(&typed("PARSER")), Some(2));
    assert_eq!(chosen(&typed("fix docs")), Some(3));
    assert_eq!(chosen(&typed("alpha tests")), Some(1));
    assert_eq!(chosen(&typed("~/other")), Some(5));
    assert_eq!(chosen(&typed("ge6s004")), Some(4), "a part of the id");
    assert_eq!(chosen(&typed("405")), Some(1), "no number, but in ids");
    assert_eq!(chosen(&typed("zzz")), None);
    assert_eq!(chosen(&[Key::Paste("fix\nthe docs\n".into())]), Some(3));
    let mut again = typed("zzz");
    again.push(Key::KillToStart);
    assert_eq!(chosen(&again), Some(1));
    let mut narrowed = vec![Key::Down, Key::Down, Key::Down];
    narrowed.extend(typed("fix"));
    assert_eq!(
        chosen(&narrowed),
        Some(1),
        "the first of those that are left"
    );
}

#[test]
fn escape_and_the_end_of_input_give_up() {
    for key in [Key::Escape, Key::OpenEditor, Key::EndOfInput] {
        assert_eq!(picker().press(key), PickStep::Cancelled);
    }
    let mut in_text = picker();
    in_text.press(Key::Letter('x'));
    assert_eq!(in_text.press(Key::EndOfInput), PickStep::Pending);
    assert_eq!(in_text.press(Key::Escape), PickStep::Cancelled);
}

#[test]
fn whole_lines_choose_one_or_say_how_many() {
    let line = |text: &str| {
        let mut picker = picker();
        for key in typed(text) {
            assert_eq!(picker.press_in_lines(key), PickStep::Pending);
        }
        picker.press_in_lines(Key::NewLine)
    };
    let id = |number: usize| PickStep::Chosen(candidate(number, "", "").id);
    assert_eq!(line(""), id(1));
    assert_eq!(line(" 1 "), id(1), "although 10 begins with it, too");
    assert_eq!(line("parser"), id(2));
    assert_eq!(line("fix"), PickStep::Unclear(2));
    assert_eq!(line("zzz"), PickStep::Unclear(0));
    assert_eq!(
        picker().press_in_lines(Key::EndOfInput),
        PickStep::Cancelled
    );
}

#[test]
fn what_is_shown_fits_the_height_and_has_the_selection() {
    let style = Style::new(false, true);
    for rows in 1..40 {
        let mut picker = picker();
        for _ in 0..12 {
            let line = picker.input_line(style, rows);
            let height = line.above.len() + 1;
            assert!(height <= rows.max(2), "{height} of {rows}");
            let shown = line
                .above
                .iter()
                .filter(|line| line.shown().starts_with('›'));
            assert_eq!(shown.count(), 1, "{rows}: {:#?}", line.above);
            picker.press(Key::Down);
        }
    }
    let mut few = picker();
    few.press(Key::Paste("fix".into()));
    few.press(Key::Down);
    let shown = few.input_line(Style::new(false, false), 24);
    let above: Vec<_> = shown.above.iter().map(Styled::shown).collect();
    assert_eq!(
        above,
        [
            "Choose a session, or type to find it:",
            "  1   Fix the tests",
            "      2 min ago - gpt-x - ~/src/Alpha",
            "> 3   fix the docs",
            "      2 min ago - gpt-x - ~/src/Alpha",
            KEYS,
        ]
    );
    let mut none = picker();
    none.press(Key::Paste("zzz".into()));
    let shown = none.input_line(style, 24);
    assert_eq!(shown.above[1].shown(), "no session matches");
}
