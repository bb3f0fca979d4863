//! Limits on the files with long output next to the store.

use std::fs;
use std::path::PathBuf;

use crate::support::{Ended, Place};

/// Configuration with limits of 1 MiB for a session and 1.5 MiB for the store.
const LIMITS: &str = "[store]\nsession_output_bytes_max = 1048576\noutput_bytes_max = 1572864\n";

/// Script of a turn with commands that print these letters, each 600,000 times. The second command runs in the
/// background.
const SCRIPT: &str = r"
replies:
  - calls: [{tool: shell, arguments: {command: head -c 600000 /dev/zero | tr '\0' a}}]
  - calls: [{tool: shell, arguments: {command: head -c 600000 /dev/zero | tr '\0' b, background: true}}]
  - calls: [{tool: background, arguments: {action: wait, id: bg_1}}]
  - calls: [{tool: shell, arguments: {command: head -c 600000 /dev/zero | tr '\0' c}}]
  - calls: [{tool: background, arguments: {action: list}}]
  - text: Done.
";

const LONG: &str = r"
replies:
  - calls: [{tool: shell, arguments: {command: head -c 9000000 /dev/zero | tr '\0' d; echo end}}]
  - text: Done.
";

fn run(place: &Place, script: &str) -> Ended {
    let config = place.file("allstop.toml", LIMITS);
    let run = place.run_script(script).args("--json hello --config");
    run.arg(config).end().ok()
}

/// Files of a session in the order of their creation.
fn files(place: &Place, session: &str) -> Vec<PathBuf> {
    let folder = place.path("store.db.output").join(session);
    let entries = fs::read_dir(folder).expect("the session has output files");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

fn content(file: &PathBuf) -> String {
    fs::read_to_string(file).expect("an output file")
}

#[test]
fn long_outputs_of_two_sessions_stay_within_the_limits() {
    let place = Place::new();
    let first = run(&place, SCRIPT).session();
    let note = |of: &str, limit: &str| {
        format!(
            "[Allstop removed this output of 600,000 bytes: the output files of {of} have reached the limit of {limit}]\n"
        )
    };
    let of_session = note("the session", "1 MiB");
    let [a, b, c] = &files(&place, &first)[..] else {
        panic!("three outputs");
    };
    assert_eq!(
        [content(a), content(b)],
        [of_session.clone(), of_session.clone()]
    );
    assert_eq!(content(c), "c".repeat(600_000));
    let shown = place.sessions().args("show --full").arg(&first).end().ok();
    let said = format!(
        "output: {} · removed: the output files of the session have reached the limit of 1 MiB\n",
        b.display()
    );
    assert!(shown.stdout.contains(&said), "{shown:#?}");
    let listed = format!("output removed from {} to free space", b.display());
    assert!(shown.stdout.contains(&listed), "{shown:#?}");

    let second = run(&place, LONG).session();
    assert_eq!(content(c), note("all sessions", "1,536 KiB"));
    let [d] = &files(&place, &second)[..] else {
        panic!("one output");
    };
    let kept = content(d);
    let end = "\n[further output is not kept: the output files of the session have reached the limit of 1 MiB]\n";
    let output = kept.strip_suffix(end).expect("the reason");
    assert_eq!(output, "d".repeat(1_048_576));
    let shown = place.sessions().args("show --full").arg(&second).end().ok();
    let cut = format!(
        "of 9000004 bytes left out; the first 1048576 bytes are in {}, then the output files of the session have reached \
         the limit of 1 MiB …]",
        d.display()
    );
    assert!(shown.stdout.contains(&cut), "{shown:#?}");

    place
        .sessions()
        .arg("rm")
        .arg(&first)
        .arg(&second)
        .end()
        .ok();
    let left = fs::read_dir(place.path("store.db.output")).expect("the folder stays");
    assert_eq!(left.count(), 0);
}
