//! The picture in the README: the screen of a real run in a terminal, with a stop and its receipt. `cargo xtask picture`
//! draws it again.

use std::fmt::Write as _;
use std::fs;

use vt100::{Cell, Color, Parser};

use crate::support::place::repository;
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place};

const ROWS: u16 = 12;
const COLUMNS: u16 = 116;
/// Size of a cell of the picture, in pixels.
const CELL: (usize, usize) = (9, 20);
const MARGIN: usize = 16;
/// Variable with which the test writes the picture instead of comparing it.
const UPDATE: &str = "UPDATE_PICTURE";
/// Id of the session, and tokens of the prompt, in the picture.
const ID: &str = "01M8HQ788TGXWPW09NF8FXD205";
const TOKENS: &str = "341";
const FILE: &str = "docs/stop.svg";

/// The shell of the user, which finds the binary.
const SHELL: &str = "PATH=\"${0%/*}:$PATH\" PS1='$ '; export PATH PS1; exec sh -i";
const COMMAND: &str = r#"allstop run --yes --model script:tree "start something stubborn""#;

/// A user types the command into a shell, presses Ctrl-C, and reads the receipt.
#[test]
fn picture_of_the_readme_is_what_the_program_draws() {
    let place = Place::new();
    let terminal = Terminal::new();
    terminal.resize((COLUMNS, ROWS));
    let shell = place.allstop().by_script(SHELL);
    let shell = shell.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    let shell = shell.with_default_prompt();
    let running = shell.on_screen(terminal.line()).start();
    terminal.wait("$ ");
    terminal.type_keys(&format!("{COMMAND}\r"));
    let both_run = within(FACT_MAX, || {
        let all = place.leftovers();
        let sleeps = all
            .iter()
            .filter(|process| process.command.contains("sleep"));
        (sleeps.count() >= 2 && terminal.shown().contains("shell: trap")).then_some(())
    });
    assert!(both_run.is_some(), "{:?}", terminal.shown());
    terminal.type_keys("\x03");
    terminal.wait("conversation unchanged");
    terminal.wait_times("$ ", 2);
    let shown = terminal.written();
    terminal.type_keys("exit\r");
    running.end(FACT_MAX);
    let mut screen = Parser::new(ROWS, COLUMNS, 100);
    screen.process(shown.as_bytes());
    let drawn = picture(screen.screen());
    let file = repository().join(FILE);
    #[expect(
        clippy::disallowed_methods,
        reason = "the variable belongs to the test"
    )]
    let updates = std::env::var_os(UPDATE).is_some();
    if updates {
        fs::write(&file, &drawn).expect("the picture");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        drawn == kept,
        "{FILE} is not what the program draws: run `cargo xtask picture`\n{}",
        screen.screen().contents()
    );
}

/// Draws a screen as SVG. Durations vary between runs, so the picture shows a typical one.
fn picture(screen: &vt100::Screen) -> String {
    let rows: Vec<Vec<StyledRun>> = (0..ROWS).map(|row| runs(screen, row)).collect();
    let used = rows.iter().rposition(|runs| !runs.is_empty());
    let used = used.map_or(0, |last| last + 1);
    let width = usize::from(COLUMNS) * CELL.0 + 2 * MARGIN;
    let height = used * CELL.1 + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>A run is stopped with Ctrl-C, and prints a receipt</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\" xml:space=\"preserve\">\n"
    );
    for (row, runs) in rows.iter().take(used).enumerate() {
        let y = MARGIN + row * CELL.1 + 15;
        for run in runs {
            let x = MARGIN + run.column * CELL.0;
            let length = run.columns * CELL.0;
            let weight = if run.bold {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let text = run
                .text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" fill=\"{}\"{weight}>{text}</text>",
                run.fill
            )
            .expect("a string");
        }
    }
    svg.push_str("</g>\n</svg>\n");
    typical(&svg)
}

/// Text in one style.
struct StyledRun {
    column: usize,
    columns: usize,
    text: String,
    fill: &'static str,
    bold: bool,
}

/// The runs of a row, without white space at their ends.
fn runs(screen: &vt100::Screen, row: u16) -> Vec<StyledRun> {
    let mut runs: Vec<StyledRun> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let (fill, bold) = (fill(cell), cell.bold());
        let text = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        match runs.last_mut() {
            Some(run) if run.fill == fill && run.bold == bold => {
                run.text.push_str(text);
                run.columns += 1;
            }
            _ => runs.push(StyledRun {
                column: usize::from(column),
                columns: 1,
                text: text.to_owned(),
                fill,
                bold,
            }),
        }
    }
    for run in &mut runs {
        let before = run.text.len() - run.text.trim_start().len();
        run.column += before;
        run.text = run.text.trim().to_owned();
        run.columns = run.text.chars().count();
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

fn fill(cell: &Cell) -> &'static str {
    match cell.fgcolor() {
        Color::Default if cell.dim() => "#8b929e",
        Color::Default => "#e6e8eb",
        Color::Idx(1 | 9) => "#f4726d",
        Color::Idx(2 | 10) => "#7ec77a",
        Color::Idx(3 | 11) => "#e5c06b",
        Color::Idx(4 | 12) => "#6ea8fe",
        Color::Idx(5 | 13) => "#c792ea",
        Color::Idx(6 | 14) => "#66c7d3",
        Color::Idx(8) => "#8b929e",
        Color::Idx(_) | Color::Rgb(..) => "#c3c8d1",
    }
}

/// Replaces the values that differ between runs and machines: durations, ids, and the tokens of the system prompt,
/// which names a folder.
fn typical(text: &str) -> String {
    let mut id = None;
    let words = text.split_inclusive(['\u{20}', '>', '<', '\n']);
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    for at in 0..words.len() {
        let word = words[at].trim_end_matches([' ', '<', '\n']).to_owned();
        let end = words[at][word.len()..].to_owned();
        let next = words.get(at + 1).map_or("", String::as_str);
        let is_id = word.len() == ID.len() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_id {
            words[at] = format!("{ID}{end}");
            id = Some(word);
        } else if id
            .as_ref()
            .is_some_and(|id| word.len() == 8 && id.ends_with(&word))
        {
            words[at] = format!("{}{end}", &ID[ID.len() - 8..]);
        } else if next.starts_with("tokens") {
            words[at] = format!("{TOKENS}{end}");
        } else if next.starts_with('s') && !next.starts_with("st") && word.contains('.') {
            words[at] = format!("2.0{end}");
        }
    }
    words.concat()
}
