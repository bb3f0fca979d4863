//! The whole output of a call: while it runs, afterwards, and from the record.

use crate::support::Place;
use crate::support::person::{CTRL_C, CTRL_D, Person};
use crate::support::terminal::Terminal;

const SCRIPT: &str = "
replies:
  - calls: [{tool: shell, arguments: {command: 'seq 1 40; exit 3'}}]
  - text: It failed.
  - calls: [{tool: shell, arguments: {command: 'echo begun; sleep 600'}}]
";

#[test]
fn output_of_a_call_is_shown_whole() {
    let place = Place::new();
    let script = place.script(SCRIPT);
    let chat = || {
        let chat = place.allstop().args("chat --yes --model");
        chat.arg(&script)
    };
    let person = Person::with_model(&place, chat(), Terminal::new());
    person.says("go").sees("It failed.");
    // The last lines of a failed command remain visible.
    let screen = person.screen();
    assert!(screen.contains("\n  │ 40\n"), "{screen}");
    assert!(!screen.contains("\n  │ 1\n"), "{screen}");
    person.says("/output").sees("[shell: seq 1 40; exit 3 (");
    person.sees("\n1\n2\n3\n").sees("\n39\n40\n");
    // Matches the output of the call, not its name.
    person.says("more").sees("│ begun").says("/output shell");
    person
        .sees("[shell: echo begun; sleep 600 (")
        .sees(", which runs]\nbegun");
    person.says("/output call_9").sees("there is no such call");
    person.presses(CTRL_C).sees("Nothing is left running");
    person.presses(CTRL_D);
    drop(person.left());
    let id = place.only_session();
    let shown = place.sessions().args("show --full").arg(&id).end().ok();
    let first = shown
        .stdout
        .find("shell: seq 1 40; exit 3 (")
        .expect("the call");
    let result = &shown.stdout[first..];
    assert!(result.contains("\n    | 1\n    | 2\n"), "{result}");
    assert!(result.contains("begun"), "{result}");
    let brief = place.sessions().arg("show").arg(&id).end().ok();
    assert!(!brief.stdout.contains("| 1\n"), "{brief:#?}");
    // Another process reads the calls from the conversation.
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let resumed = resumed.arg("--model").arg(&script);
    let person = Person::with_model(&place, resumed, Terminal::new());
    person.says("/output").sees("Its output until then:\nbegun");
    person.presses(CTRL_D);
    drop(person.left());
}
