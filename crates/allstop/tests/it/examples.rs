//! Runs every example as a process, and compares its output.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles an example as a module whose `run` is the example's `main`.
macro_rules! example {
    ($name:ident, $file:literal) => {
        mod $name {
            include!(concat!("../../examples/", $file));

            pub(super) fn run() -> Result<(), Box<dyn std::error::Error>> {
                main()
            }
        }
    };
}

example!(atomic_budget, "atomic_budget.rs");
example!(cancel_one_call, "cancel_one_call.rs");
example!(custom_model, "custom_model.rs");
example!(hello, "hello.rs");
#[cfg(feature = "sqlite")]
example!(persisted_session, "persisted_session.rs");
example!(process_tree, "process_tree.rs");
example!(replace_answer, "replace_answer.rs");
example!(scope_alone, "scope_alone.rs");
example!(stop_safe_test, "stop_safe_test.rs");
#[cfg(feature = "tasks")]
example!(task_manager, "task_manager.rs");
#[cfg(feature = "nats")]
example!(two_managers, "two_managers.rs");
example!(structured_output, "structured_output.rs");
example!(typed_tool, "typed_tool.rs");
example!(wait_for_background, "wait_for_background.rs");

/// Variable with the name of the example that a child process runs.
const EXAMPLE: &str = "ALLSTOP_TEST_EXAMPLE";
const BEGIN: &str = "--- output ---\n";

/// Not a test by itself: the child processes of the other tests run one example here.
#[test]
fn child_runs_one_example() {
    #[expect(clippy::disallowed_methods, reason = "set by the parent process")]
    let Ok(name) = std::env::var(EXAMPLE) else {
        return;
    };
    print!("\n{BEGIN}");
    match name.as_str() {
        "atomic_budget" => atomic_budget::run(),
        "cancel_one_call" => cancel_one_call::run(),
        "custom_model" => custom_model::run(),
        "hello" => hello::run(),
        #[cfg(feature = "sqlite")]
        "persisted_session" => persisted_session::run(),
        "process_tree" => process_tree::run(),
        "replace_answer" => replace_answer::run(),
        "scope_alone" => scope_alone::run(),
        "stop_safe_test" => stop_safe_test::run(),
        #[cfg(feature = "tasks")]
        "task_manager" => task_manager::run(),
        #[cfg(feature = "nats")]
        "two_managers" => two_managers::run(),
        "structured_output" => structured_output::run(),
        "typed_tool" => typed_tool::run(),
        "wait_for_background" => wait_for_background::run(),
        unknown => panic!("no example {unknown}"),
    }
    .unwrap();
    print!("{BEGIN}");
}

/// Output of an example. Durations and ids are replaced.
fn output_of(name: &str) -> String {
    output_with(name, &[])
}

/// Output of an example with these environment variables.
fn output_with(name: &str, variables: &[(&str, &str)]) -> String {
    let child = Command::new(std::env::current_exe().expect("a path"))
        .args(["examples::child_runs_one_example", "--exact", "--nocapture"])
        .env(EXAMPLE, name)
        .envs(variables.iter().copied())
        .output()
        .expect("a child");
    let output = String::from_utf8(child.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}\n{errors}");
    let output = output.split(BEGIN).nth(1).expect("two marks");
    let is_number = |word: &&str| word.parse::<f64>().is_ok();
    let lines = output.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut words = words.windows(2).map(|pair| match pair {
            [number, "ms" | "ms."] if is_number(number) => "N",
            [id, _] if id.parse::<ulid::Ulid>().is_ok() => "ID",
            _ => pair[0],
        });
        let last = line.rsplit(' ').next().unwrap_or_default();
        let mut shown: Vec<&str> = words.by_ref().collect();
        shown.push(last);
        shown.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(name: &str, expected: &[&str]) {
    assert_eq!(output_of(name), expected.join("\n"));
}

#[test]
fn hello_answers_and_stops() {
    check(
        "hello",
        &[
            "Take sunglasses.",
            "Turn 2 stopped by you in N ms. Nothing is left running; verified.",
        ],
    );
}

#[test]
fn typed_tool_gets_only_valid_arguments() {
    let output = output_of("typed_tool");
    assert!(output.contains("\"Amount in euros.\""), "{output}");
    assert!(output.ends_with("\n320.00 Yen"), "{output}");
}

#[test]
fn answer_is_a_value_after_one_correction() {
    let output = output_of("structured_output");
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("model reads: "), "{output}");
    assert!(lines[0].contains("minutes"), "{output}");
    assert_eq!(lines[1], "Pesto, 20 minutes: basil and oil");
    assert!(
        lines[2].contains("the answer is not a JSON value"),
        "{output}"
    );
}

#[test]
fn one_call_is_cancelled_once() {
    check(
        "cancel_one_call",
        &[
            "first request: true",
            "second request: false",
            "unknown call: false",
            "downloaded | the call was stopped: user",
        ],
    );
}

#[test]
fn new_message_replaces_the_answer_of_its_chat() {
    check(
        "replace_answer",
        &[
            "ann: superseded",
            "bob: Answer to: the time",
            "ann: Answer to: a short one",
        ],
    );
}

#[test]
fn wait_includes_background_work() {
    check(
        "wait_for_background",
        &[
            "timed out: false, still running: 0",
            "The build runs.",
            "bg_1: 3 crates built",
        ],
    );
}

#[test]
fn turn_beyond_the_budget_changes_nothing() {
    let output = output_of("atomic_budget");
    assert!(output.contains("\nmax_budget_reached: "), "{output}");
    assert!(
        output.contains("\nconversation unchanged: true"),
        "{output}"
    );
    assert!(
        output.ends_with("\nspent within the budget: true"),
        "{output}"
    );
}

#[cfg(feature = "sqlite")]
#[test]
fn later_process_continues_the_session() {
    check(
        "persisted_session",
        &[
            "Answer 1 to `one`",
            "conversation: Unchanged",
            "Answer 2 to `two`",
            "messages: 4",
        ],
    );
}

#[test]
fn model_of_the_program_streams() {
    check(
        "custom_model",
        &[
            "[this ][can ][you ][stop ] completed",
            "this can you stop in 1 step",
        ],
    );
}

#[test]
fn process_tree_ends_with_proof() {
    let output = output_of("process_tree");
    assert!(
        output.starts_with("started\nEverything stopped by you in N ms. Nothing is left running;")
    );
    assert!(output.contains("process_group_empty"), "{output}");
}

#[test]
fn scope_stops_futures_and_threads() {
    check(
        "scope_alone",
        &[
            "Would stop everything: 3 pieces of work run.",
            "Everything stopped by you in N ms. Nothing is left running; verified.",
            "3 of 3 stopped: checksum, orders, users",
        ],
    );
}

#[test]
fn tool_that_ignores_stops_is_caught_by_its_test() {
    let output = output_of("stop_safe_test");
    let lines = "0 broken\ndownload: clean\ndeaf: caught by tool_observes_stop";
    assert!(output.ends_with(lines), "{output}");
}

#[cfg(feature = "tasks")]
#[test]
fn task_ends_with_the_receipt_of_its_stop() {
    check(
        "task_manager",
        &[
            "canceler: unlocks the disk",
            "canceled",
            "Task ID stopped by you in N ms. Nothing is left running; verified.",
        ],
    );
}

#[cfg(feature = "nats")]
#[test]
fn manager_stops_a_task_of_another_manager() {
    let folder = tempfile::tempdir().unwrap();
    let server = allstop_testkit::nats_server::NatsServer::start(folder.path());
    let output = output_with("two_managers", &[("NATS_URL", &server.url())]);
    let expected = [
        "the front end accepts, the worker runs",
        "canceled",
        "Task ID stopped by you in N ms. Nothing is left running; verified.",
    ];
    assert_eq!(output, expected.join("\n"));
}

/// Maximum number of lines of an example, so that a reader sees it at once.
const LINES_MAX: usize = 60;

#[test]
fn examples_are_short_and_the_readme_quotes_the_first() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(package.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines", path.display());
    }
    let readme = fs::read_to_string(package.join("../../README.md")).unwrap();
    let (_, first) = readme.split_once("```rust\n").expect("Rust code");
    let (first, _) = first.split_once("```").expect("its end");
    assert_eq!(
        first,
        fs::read_to_string(package.join("examples/hello.rs")).unwrap()
    );
}
