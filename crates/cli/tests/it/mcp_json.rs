//! MCP servers of a project's `.mcp.json`, which have no effect until the user trusts them.

use std::fs;

use crate::support::Place;
use crate::support::mcp_server::shell_server;

const SCRIPT: &str = "replies: [{text: Done.}]";

/// A project with a server whose start creates the file `started-NAME`, with the value of a variable.
fn project(place: &Place) {
    let server = shell_server("touch \"started-$GREETING\"", "[]", "continue");
    let server = place.file("server.sh", server);
    let text = format!(
        r#"{{"mcpServers": {{"team": {{"command": "sh", "args": ["{}"], "env": {{"GREETING": "${{WHO:-nobody}}"}}}}}}}}"#,
        server.display()
    );
    write(place, &text);
}

fn write(place: &Place, text: &str) {
    fs::write(place.work().join(".mcp.json"), text).expect("a project's file");
}

#[test]
fn servers_run_only_after_the_project_is_trusted() {
    let place = Place::new();
    project(&place);
    let ended = place.run_script(SCRIPT).arg("hello").end().ok();
    assert!(!place.work().join("started-nobody").exists());
    let ignored = ".mcp.json is ignored: not trusted yet. `allstop config trust`";
    assert!(ended.stderr.contains(ignored), "{}", ended.stderr);
    let trusted = place.allstop().args("config trust").end().ok();
    let line = "starts the MCP server team: GREETING=";
    assert!(trusted.stdout.contains(line), "{}", trusted.stdout);
    for (value, file) in [(None, "started-nobody"), (Some("Ada"), "started-Ada")] {
        let run = place.run_script(SCRIPT).arg("hello");
        let run = value
            .into_iter()
            .fold(run, |run, value| run.env("WHO", value));
        run.end().ok();
        assert!(place.work().join(file).exists(), "{file}");
    }
    for command in ["mcp list", "config show", "doctor"] {
        let shown = place.allstop().args(command).end();
        assert!(shown.stdout.contains("team"), "{command}: {}", shown.stdout);
    }
    let untrusted = place.allstop().args("config untrust").end().ok();
    assert!(untrusted.stdout.contains("answer deleted"));
    let listed = place.allstop().args("mcp list").end().ok();
    assert!(!listed.stdout.contains("team"), "{}", listed.stdout);
}

#[test]
fn list_and_test_name_the_file_that_is_not_trusted() {
    let place = Place::new();
    project(&place);
    for command in ["mcp list", "mcp test team"] {
        let ended = place.allstop().args(command).end();
        assert!(!ended.stdout.contains("team"), "{}", ended.stdout);
        let said = ".mcp.json is ignored: not trusted yet. `allstop config trust`";
        assert!(ended.stderr.contains(said), "{command}: {}", ended.stderr);
    }
    place.allstop().args("config trust").end().ok();
    let listed = place.allstop().args("mcp list").end().ok();
    assert!(!listed.stderr.contains("ignored"), "{}", listed.stderr);
}

#[test]
fn server_with_a_wrong_type_is_left_out() {
    let place = Place::new();
    let server = shell_server("touch started", "[]", "continue");
    let server = place.file("server.sh", server);
    let text = format!(
        r#"{{"mcpServers": {{"team": {{"command": "x", "args": "y"}},
            "other": {{"command": "sh", "args": ["{}"]}}}}}}"#,
        server.display()
    );
    write(&place, &text);
    let run = place.run_script(SCRIPT);
    let ended = run.args("--project-config trust hello").end().ok();
    let said = "the MCP server \"team\" of .mcp.json is left out: invalid type: string \"y\"";
    assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    assert!(
        place.work().join("started").exists(),
        "the other server runs"
    );
}

#[test]
fn rule_about_an_absent_server_is_a_note() {
    let place = Place::new();
    let rules = "[permissions]\ndeny = ['absent__delete']\n";
    let config = place.file("rules.toml", rules);
    let run = place.run_script(SCRIPT).arg("--config").arg(config);
    let ended = run.arg("hello").end().ok();
    let said =
        "the permission rule `absent__delete` has no effect: no MCP server `absent` is configured";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    let misspelt = place.file("misspelt.toml", "[permissions]\ndeny = ['sheII']\n");
    let run = place.run_script(SCRIPT).arg("--config").arg(misspelt);
    assert_eq!(run.arg("hello").end().code, 2);
}

#[test]
fn server_of_the_user_wins() {
    let place = Place::new();
    project(&place);
    let config = place.file("u.toml", "[mcp.servers.team]\ncommand = 'mine'\n");
    place.allstop().args("config trust").end().ok();
    let list = format!("mcp --config {} list", config.display());
    let listed = place.allstop().args(&list).end().ok();
    assert!(listed.stdout.contains("mine"), "{}", listed.stdout);
    assert!(!listed.stdout.contains("server.sh"), "{}", listed.stdout);
}

#[test]
fn invalid_file_is_named_with_its_line_and_stops_nothing() {
    let place = Place::new();
    write(&place, "{\n  \"mcpServers\": [1]\n}");
    let ended = place.run_script(SCRIPT).arg("hello").end().ok();
    let said = ".mcp.json:2:";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("the file is ignored: correct the file")
    );
    let ignored = place.run_script(SCRIPT);
    let ended = ignored.args("--project-config ignore hello").end().ok();
    assert!(!ended.stderr.contains(".mcp.json"), "{}", ended.stderr);
}

#[test]
fn server_with_a_variable_without_a_value_is_left_out() {
    let place = Place::new();
    let server = shell_server("touch started", "[]", "continue");
    let server = place.file("server.sh", server);
    let text = format!(
        r#"{{"mcpServers": {{"team": {{"url": "https://x.example/${{TEAM_PATH}}"}},
            "other": {{"command": "sh", "args": ["{}"]}}}}}}"#,
        server.display()
    );
    write(&place, &text);
    let run = place.run_script(SCRIPT);
    let ended = run.args("--project-config trust hello").end().ok();
    let said = "the MCP server \"team\" of .mcp.json is left out: the environment variable TEAM_PATH is not set; set it";
    assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    assert!(
        place.work().join("started").exists(),
        "the other server runs"
    );
    place.allstop().args("config trust").end().ok();
    let tested = place.allstop().args("mcp test team").end();
    assert_eq!(tested.code, 2, "{}", tested.stderr);
    let said =
        "the MCP server `team` cannot be used: the environment variable TEAM_PATH is not set";
    assert!(tested.stderr.contains(said), "{}", tested.stderr);
}
