//! The configuration of a project, which has no effect until the user trusts its content.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use crate::support::terminal::Terminal;
use crate::support::{Allstop, Ended, FACT_MAX, Place};

/// Configuration with a hook, which runs at the start of each turn, and an MCP server. Both create a file, so the test
/// can see that they ran.
const RUNS_COMMANDS: &str = r#"
[[hooks]]
on = "turn_start"
command = "echo x >> hooked"
[mcp.servers.files]
command = "touch"
args = ["started"]
"#;
const HELLO: &str = "replies: [{text: Done.}, {text: Done.}]";
const QUESTION: &str = "? Do you trust the settings of this folder";

fn project(place: &Place, text: &str) {
    fs::write(place.work().join(".allstop.toml"), text).expect("a project's file");
}

fn hello(place: &Place) -> Allstop<'_> {
    place.run_script(HELLO).arg("hello")
}

/// Number of times that the hook of the project ran.
fn hooked(place: &Place) -> usize {
    let ran = fs::read_to_string(place.work().join("hooked"));
    ran.unwrap_or_default().lines().count()
}

/// Runs a prompt at a terminal, and answers the question about trust with these keys. Returns the result and the
/// screen.
fn answered(place: &Place, keys: &str) -> (Ended, String) {
    let terminal = Terminal::new();
    let run = hello(place).env("TERM", "xterm");
    let running = run.on_terminal(terminal.line()).start();
    terminal.wait("[y]es");
    terminal.type_keys(keys);
    let ended = running.end(FACT_MAX);
    (ended, terminal.all_shown())
}

/// Runs a prompt at a terminal, and asserts that no question about trust is asked.
fn unasked(place: &Place) -> Ended {
    let terminal = Terminal::new();
    let run = hello(place).env("TERM", "xterm");
    let ended = run.on_terminal(terminal.line()).start().end(FACT_MAX);
    assert!(!terminal.all_shown().contains(QUESTION));
    ended.ok()
}

#[test]
fn nothing_of_it_is_used_without_trust() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let ended = hello(&place).end().ok();
    assert_eq!(hooked(&place), 0);
    assert!(!place.work().join("started").exists());
    let lines = ended.stderr.lines();
    let said: Vec<_> = lines
        .filter(|line| line.contains(".allstop.toml"))
        .collect();
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    assert!(said[0].contains("is ignored: not trusted yet. `allstop config trust`"));
    let shown = place.allstop().args("config show").end().ok();
    assert!(!shown.stdout.contains("hooked"), "{}", shown.stdout);
}

#[test]
fn mcp_commands_use_only_a_trusted_project() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let started = place.work().join("started");
    let mcp = |args: &str| place.allstop().arg("mcp").args(args).end();
    let untrusted = || {
        let listed = mcp("list").ok();
        assert!(!listed.stdout.contains("files"), "{listed:?}");
        let tested = mcp("test files");
        assert_eq!(tested.code, 2, "{tested:?}");
        assert!(!started.exists(), "{tested:?}");
    };
    untrusted();
    answered(&place, "n\n").0.ok();
    untrusted();
    place.allstop().args("config trust").end().ok();
    let listed = mcp("list").ok();
    assert!(listed.stdout.contains("files"), "{listed:?}");
    let tested = mcp("test files");
    assert!(
        tested.stdout.contains("files is not available"),
        "{tested:?}"
    );
    assert!(started.exists(), "{tested:?}");
}

#[test]
fn trust_is_remembered_until_the_file_changes() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let (ended, screen) = answered(&place, "y\n");
    ended.ok();
    for part in [
        QUESTION,
        "starts the MCP server files: touch started",
        "runs on turn_start: echo x >> hooked",
    ] {
        assert!(screen.contains(part), "{part:?} is not in:\n{screen}");
    }
    assert_eq!(hooked(&place), 1);
    assert!(place.work().join("started").exists());
    unasked(&place);
    hello(&place).end().ok();
    assert_eq!(hooked(&place), 3, "also without a terminal");

    project(&place, &RUNS_COMMANDS.replace("echo x", "echo y"));
    hello(&place).end().ok();
    assert_eq!(hooked(&place), 3, "the change is not trusted");
    answered(&place, "y\n").0.ok();
    assert_eq!(hooked(&place), 4);
}

#[test]
fn no_is_remembered_and_no_answer_is_not() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    // The first run gets Ctrl-D. The second run gets an invalid word, and then an answer.
    answered(&place, "\x04").0.ok();
    let (ended, screen) = answered(&place, "perhaps\nn\n");
    ended.ok();
    assert!(screen.contains("answer y or n"), "{screen}");
    unasked(&place);
    let ended = hello(&place).end().ok();
    assert!(
        ended.stderr.contains("you declined to trust it"),
        "{}",
        ended.stderr
    );
    assert_eq!(hooked(&place), 0);
}

#[test]
fn ctrl_c_at_the_question_leaves_and_remembers_nothing() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let (ended, _) = answered(&place, "\x03");
    assert_eq!(ended.code, 130);
    assert_eq!(hooked(&place), 0);
    assert!(!place.path("home/.local/share/allstop/trusted").exists());
}

#[test]
fn deadline_ends_the_question() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let terminal = Terminal::new();
    let run = hello(&place).args("--timeout 1s").env("TERM", "xterm");
    let ended = run.on_terminal(terminal.line()).start().end(FACT_MAX);
    assert_eq!(ended.code, 124, "{}", terminal.shown());
    terminal.wait("the run's deadline passed before an answer");
}

#[test]
fn command_trusts_and_forgets() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let trusted = place.allstop().args("config trust").end().ok();
    assert!(
        trusted
            .stdout
            .contains("runs on turn_start: echo x >> hooked")
    );
    let folder = place.path("home/.local/share/allstop/trusted");
    let answer = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    assert_eq!(answer.metadata().unwrap().mode() & 0o777, 0o600);
    let ended = hello(&place).end().ok();
    assert!(ended.stderr.contains("settings: "), "{}", ended.stderr);
    assert_eq!(hooked(&place), 1);
    let shown = place.allstop().args("config show").end().ok();
    assert!(shown.stdout.contains("hooked"), "{}", shown.stdout);

    place.allstop().args("config untrust").end().ok();
    hello(&place).end().ok();
    assert_eq!(hooked(&place), 1);
    let again = place.allstop().args("config untrust").end().ok();
    assert!(again.stdout.contains("no saved answer"), "{}", again.stdout);
}

#[test]
fn flag_and_variable_use_it_or_leave_it_out() {
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    hello(&place).args("--project-config trust").end().ok();
    assert_eq!(hooked(&place), 1);
    let ended = hello(&place).end().ok();
    assert!(ended.stderr.contains("is ignored"), "not remembered");
    let ended = hello(&place).env("ALLSTOP_PROJECT_CONFIG", "ignore").end();
    assert!(!ended.ok().stderr.contains(".allstop.toml"));
    assert_eq!(hooked(&place), 1);
}

#[test]
fn flags_win_over_the_project_and_the_project_over_the_user() {
    let place = Place::new();
    project(&place, "[limits]\nmax_steps = 7\nmax_turns = 8");
    let user = place.file(
        "user.toml",
        "[limits]\nmax_steps = 5\nmax_turns = 6\n[deadlines]\ngrace = '3s'",
    );
    let show = place
        .allstop()
        .args("config show --project-config trust --config")
        .arg(user);
    let shown = show.end().ok().stdout;
    for part in ["max_steps = 7", "max_turns = 8", "grace = \"3s\""] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    project(&place, "[limits]\nmax_turns = 1");
    let run = hello(&place).args("--project-config trust --max-turns 2 --then again");
    run.end().ok();
    let run = hello(&place).args("--project-config trust --then again");
    assert_eq!(run.end().code, 4);
}

#[test]
fn unusable_file_is_a_usage_error_and_never_a_wait() {
    let place = Place::new();
    let file = place.work().join(".allstop.toml");
    let refused = |says: &str| {
        let ended = hello(&place).end();
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        for part in [says, "--project-config ignore"] {
            assert!(
                ended.stderr.contains(part),
                "{part:?} is not in {}",
                ended.stderr
            );
        }
        hello(&place).args("--project-config ignore").end().ok();
    };
    project(&place, "[model\n");
    refused(".allstop.toml:1:7: unclosed table");
    fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo").success());
    refused("is a named pipe");
    fs::remove_file(&file).unwrap();
    let outside = place.file("outside.toml", RUNS_COMMANDS);
    symlink(outside, &file).unwrap();
    refused("outside the working directory");
    fs::remove_file(&file).unwrap();
    fs::File::create(&file)
        .and_then(|file| file.set_len(100 << 20))
        .unwrap();
    refused("expected at most 65536");
}

#[test]
fn file_of_another_user_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    project(&place, RUNS_COMMANDS);
    let file = place.work().join(".allstop.toml");
    std::os::unix::fs::chown(file, Some(65_534), None).unwrap();
    let ended = hello(&place).args("--project-config trust").end().ok();
    assert!(
        ended.stderr.contains("belongs to another user (uid 65534)"),
        "{}",
        ended.stderr
    );
    assert_eq!(hooked(&place), 0);
}

/// If the working directory is the home folder, it contains the folder with the answers about trust. The file tools
/// must not write there.
#[test]
fn answers_about_projects_are_out_of_reach_of_tools() {
    let script = "replies: [{calls: [{tool: write, arguments: {path: data/allstop/trusted/x, content: trusted}}]}, {text: Done.}]";
    for exists in [false, true] {
        let place = Place::new();
        let trusted = place.work().join("data/allstop/trusted");
        let folder = if exists {
            &trusted
        } else {
            &place.work().join("data/allstop")
        };
        std::fs::create_dir_all(folder).expect("a folder");
        let run = place.run_script(script).args("--mode accept-edits go");
        let run = run.env("XDG_DATA_HOME", place.work().join("data"));
        let ended = run.end().ok();
        assert!(!trusted.join("x").exists(), "{exists}: {ended:#?}");
    }
}
