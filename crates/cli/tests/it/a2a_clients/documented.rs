//! Tests of the examples in `docs/serve.md`, which run unchanged.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::script::Client;
use crate::support::parts::part;
use crate::support::place::repository;
use crate::support::{FACT_MAX, Place, Running, Signal};

/// Address of the server in the examples.
const ADDRESS: &str = "http://127.0.0.1:8080";

fn example(language: &str, url: &str) -> String {
    let document = repository().join("docs/serve.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let (_, section) = document
        .split_once("## Official clients\n")
        .expect("the section");
    let (_, code) = section
        .split_once(&format!("```{language}\n"))
        .expect("an example");
    let (code, _) = code.split_once("```").expect("its end");
    assert!(code.contains(ADDRESS), "{code}");
    code.replace(ADDRESS, url)
}

/// Runs the example against `allstop serve --agent echo`, and asserts its output.
fn check(client: Client, language: &str, expected: &str) {
    let Some(part) = part(client.part()) else {
        return;
    };
    let place = Place::new();
    let serve = place
        .allstop()
        .args("serve --agent echo --listen 127.0.0.1:0 --store");
    let server = serve.arg(place.store()).start();
    let code = example(language, &server.line_of_stdout("listening on "));
    let mut command = match client {
        Client::Python | Client::PythonV03 => {
            let mut python = Command::new("python3");
            python.arg(place.file("example.py", code));
            python.env("PYTHONPATH", &part);
            python
        }
        Client::JavaScript | Client::JavaScriptV03 => {
            let installed = part.join("node_modules");
            let link = place.path("node_modules");
            std::os::unix::fs::symlink(installed, link).expect("a link");
            let mut node = Command::new("node");
            node.arg(place.file("example.mjs", code));
            node
        }
    };
    let begin = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = Running::new(child.spawn().expect("it starts"), begin).end(FACT_MAX);
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (0, expected),
        "{}",
        ended.stderr
    );
    assert_eq!(server.end_by(Signal::TERM).code, 143);
}

#[test]
fn python_example_prints_its_text() {
    check(Client::Python, "python", "hello from Python");
}

#[test]
fn javascript_example_prints_its_text() {
    check(Client::JavaScript, "js", "hello from JavaScript");
}

/// Regression: the examples named a fixed message id, so their second run was a repetition of the first.
#[test]
fn each_run_of_a_curl_example_sends_a_new_message() {
    let document = repository().join("docs/serve.md");
    let document = std::fs::read_to_string(document).expect("the document");
    let start = |line: &&str| line.starts_with("curl ") && line.contains("/message:send");
    let mut examples = 0;
    for (at, _) in document.lines().enumerate().filter(|(_, line)| start(line)) {
        let lines: Vec<_> = document
            .lines()
            .skip(at)
            .take_while(|line| *line != "```")
            .collect();
        // The shell prints the body of the request, instead of sending it.
        let printed = "curl() { for last; do :; done; printf '%s\\n' \"$last\"; }; task=t";
        let script = format!("{printed}\n{}", lines.join("\n"));
        let run = || {
            let output = Command::new("sh").arg("-c").arg(&script).output();
            let body = output.expect("a shell").stdout;
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            body["message"]["messageId"].as_str().map(str::to_owned)
        };
        let (first, second) = (run(), run());
        assert!(
            first.is_some() && first != second,
            "{script}: {first:?}, {second:?}"
        );
        examples += 1;
    }
    assert!(examples >= 2, "{examples}");
}
