//! Servers of tools that are not available: what people and programs are told, and how often.

use crate::support::{Allstop, Place};

/// A server that exits at its start, and says why.
const GONE: &str =
    "[mcp.servers.gone]\ncommand = \"sh\"\nargs = [\"-c\", \"echo no database >&2; exit 3\"]\n";

/// Longer than the first new attempts take.
const SCRIPT: &str = r#"
replies:
  - calls:
      - tool: shell
        arguments: {command: "sleep 2"}
  - text: "Done."
"#;

fn run(place: &Place) -> Allstop<'_> {
    let config = place.file("gone.toml", GONE);
    place.run_script(SCRIPT).arg("--config").arg(config)
}

#[test]
fn one_that_is_not_available_is_named_once() {
    let place = Place::new();
    let ended = run(&place).arg("go").end().ok();
    let lines: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.contains("`gone`"))
        .collect();
    let [line] = lines[..] else {
        panic!("not one line: {ended:?}");
    };
    assert!(
        line.starts_with("the MCP server `gone` is not available: "),
        "{line}"
    );
    assert!(
        line.contains("(exit code 3: no database); it is tried again in 1 s"),
        "{line}"
    );
}

#[test]
fn a_program_reads_it_as_an_event() {
    let place = Place::new();
    let ended = run(&place).args("--stream-json go").end().ok();
    let mut lines = ended.lines();
    lines.retain(|line| line["event"] == "mcp_server");
    let [event] = &lines[..] else {
        panic!("not one event: {ended:?}");
    };
    assert_eq!(event["server"], "gone");
    assert_eq!(event["available"], false);
    assert!(
        event["next_try_ms"].as_u64().is_some_and(|ms| ms <= 500),
        "{event}"
    );
    assert!(!ended.stderr.contains("gone"), "{ended:?}");
}
