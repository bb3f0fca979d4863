//! The command `/output` shows the whole output of a call: while the call runs, after its end, and from the record in a
//! later chat.

use crate::support::Place;
use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
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
    let user = ChatUser::with_model(&place, chat(), Terminal::new());
    user.types("go").waits_for("It failed.");
    // The last output lines of a failed command stay visible in the transcript.
    let screen = user.screen();
    assert!(screen.contains("\n  │ 40\n"), "{screen}");
    assert!(!screen.contains("\n  │ 1\n"), "{screen}");
    user.types("/output")
        .waits_for("[shell: seq 1 40; exit 3 (");
    user.waits_for("\n1\n2\n3\n").waits_for("\n39\n40\n");
    // The awaited text has the bar of an output line, so it is not the name of the call.
    user.types("more")
        .waits_for("│ begun")
        .types("/output shell");
    user.waits_for("[shell: echo begun; sleep 600 (")
        .waits_for(", running]\nbegun");
    user.types("/output call_9")
        .waits_for("call `call_9` not found");
    user.presses(CTRL_C).waits_for("Nothing is left running");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
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
    // A later chat, in another process, reads the outputs of the calls from the recorded conversation.
    let resumed = place.allstop().args("sessions resume").arg(&id);
    let resumed = resumed.arg("--model").arg(&script);
    let user = ChatUser::with_model(&place, resumed, Terminal::new());
    user.types("/output")
        .waits_for("Its output until then:\nbegun");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}
