//! `allstop doctor`: prints a row for each checked part, and a remedy for each problem.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::Value;

use crate::support::{Ended, Place};

fn doctor(place: &Place, args: &str) -> (Ended, Value) {
    let doctor = place
        .allstop()
        .args("doctor --json --store")
        .arg(place.store());
    let ended = doctor.args(args).end();
    let report = serde_json::from_str(&ended.stdout).expect("a report");
    (ended, report)
}

#[track_caller]
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut rows = report["checks"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no row {name} in {report}"))
}

#[test]
fn working_parts_are_good_and_nothing_is_left() {
    let place = Place::new();
    let (ended, report) = doctor(&place, "--model script:hello --online");
    assert_eq!((ended.code, &report["ok"]), (0, &Value::Bool(true)));
    for name in [
        "configuration",
        "model",
        "model server",
        "store",
        "stopping",
        "sockets",
    ] {
        assert_eq!(row(&report, name)["state"], "good", "{report}");
    }
    let said = row(&report, "stopping")["message"].to_string();
    assert!(said.contains("verified by its keeper"), "{said}");
    assert!(!place.store().exists(), "looking makes no store");
    place.assert_nothing_runs();
    place
        .run_script("replies: [{text: Done.}]")
        .arg("hello")
        .end()
        .ok();
    let (_, report) = doctor(&place, "--model script:hello");
    assert!(
        row(&report, "store")["message"]
            .to_string()
            .contains("no damage")
    );
}

#[test]
fn problems_have_a_remedy_and_an_exit_code() {
    let place = Place::new();
    let (ended, report) = doctor(&place, "");
    assert_eq!((ended.code, &report["ok"]), (1, &Value::Bool(false)));
    let model = row(&report, "model");
    assert_eq!(model["state"], "bad");
    assert!(
        model["hint"].to_string().contains("OPENAI_API_KEY"),
        "{model}"
    );

    let bad = place.file("bad.toml", "[model]\nnme = 'x'");
    let (ended, report) = doctor(&place, &format!("--config {}", bad.display()));
    assert_eq!(ended.code, 1);
    assert!(
        row(&report, "configuration")["message"]
            .to_string()
            .contains(":2:1"),
        "{report}"
    );

    std::fs::write(
        place.store(),
        "no database at all, but long enough to be one",
    )
    .unwrap();
    let (_, report) = doctor(&place, "--model script:hello");
    assert_eq!(row(&report, "store")["state"], "bad", "{report}");
    let doctor = place
        .allstop()
        .args("doctor --model script:hello --store /proc/none/x.db");
    let ended = doctor.end();
    assert_eq!(ended.code, 1);
    assert!(
        ended.stdout.contains("`/proc/none` cannot be written"),
        "{}",
        ended.stdout
    );
}

#[test]
fn servers_are_tried_and_only_the_flag_sends_a_request() {
    let place = Place::new();
    let config = "[mcp.servers.gone]\ncommand = 'false'";
    let config = place.file("gone.toml", config);
    let server = OpenAiServer::start([ServerAnswer::status(401)]);
    let flags = format!(
        "--config {} --model m --base-url {}",
        config.display(),
        server.url()
    );
    let (ended, report) = doctor(&place, &flags);
    assert_eq!(ended.code, 0, "a run is possible without the server");
    let gone = row(&report, "MCP server");
    let hint = format!(
        "see why: allstop mcp test gone --config {}",
        config.display()
    );
    assert_eq!(
        (&gone["state"], &gone["hint"]),
        (&"warning".into(), &hint.into())
    );
    let (ended, report) = doctor(&place, &format!("{flags} --online"));
    assert_eq!(
        (ended.code, &row(&report, "model server")["state"]),
        (1, &"bad".into())
    );
    place.assert_nothing_runs();
}

/// The settings that a run would refuse. The server gets no request.
#[test]
fn settings_of_requests_are_checked_before_anything_is_sent() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("x")]);
    for (settings, problem) in [
        (
            "provider_options = { model = 'x' }",
            "cannot replace the field `model`",
        ),
        ("temperature = nan", "the setting `temperature` is NaN"),
        (
            "tool_choice = { tool = 'sheII' }",
            "names the unknown tool `sheII`",
        ),
        ("provider_options = { seed = nan }", "`inf` or `nan`"),
    ] {
        let config = place.file("request.toml", format!("[model.request]\n{settings}"));
        let flags = format!(
            "--config {} --model m --base-url {}",
            config.display(),
            server.url()
        );
        let (ended, report) = doctor(&place, &format!("{flags} --online"));
        let part = if settings.contains("seed") {
            "configuration"
        } else {
            "requests"
        };
        let found = row(&report, part);
        assert_eq!(
            (ended.code, &found["state"]),
            (1, &"bad".into()),
            "{report}"
        );
        assert!(found["message"].to_string().contains(problem), "{found}");
        let run = place
            .allstop()
            .args("run --json --store")
            .arg(place.store());
        let run = run.args(&flags).arg("hello").end();
        assert_ne!(run.code, 0);
        let output = format!("{}{}", run.stdout, run.stderr);
        assert!(
            output.contains(problem),
            "a run reports the problem, too: {output}"
        );
    }
    assert!(server.requests().is_empty());
    let config = place.file(
        "good.toml",
        "[model.request]\ntool_choice = { tool = 'shell' }",
    );
    let flags = format!("--config {} --model script:hello", config.display());
    assert_eq!(doctor(&place, &flags).0.code, 0);
}
