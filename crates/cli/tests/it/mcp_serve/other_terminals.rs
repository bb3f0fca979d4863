//! Commands of `allstop mcp serve` in `allstop ps` and `allstop stop`, as another terminal sees them.

use serde_json::{Value, json};

use super::client::McpUser;
use super::{ended_by, wait_for_no_sleeper, wait_for_sleeper};
use crate::support::{Ended, Place, Signal};

fn allstop(place: &Place, args: &str) -> Ended {
    place.allstop().args(args).end()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// Starts a command in the background. Returns its id.
fn background(place: &Place, user: &mut McpUser) -> String {
    let report = user.report("background", &json!({"command": place.sleeper()}));
    wait_for_sleeper(place);
    report["id"].as_str().expect("an id").to_owned()
}

#[test]
fn command_is_listed_and_stopped_by_its_id() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    assert!(
        allstop(&place, "ps")
            .ok()
            .stdout
            .contains("ready  mcp serve")
    );
    let id = background(&place, &mut user);
    let listed = allstop(&place, "ps").ok().stdout;
    assert!(listed.contains("runs  mcp serve in process"), "{listed}");
    assert!(listed.contains(place.sleeper()), "{listed}");
    let listed = json(&allstop(&place, "ps --json").ok());
    assert_eq!(listed["commands"][0]["command_id"], id, "{listed}");
    assert_eq!(listed["sessions"], json!([]));
    let work = &listed["commands"][0]["work"][1];
    assert_eq!(work["why"], "not_asked", "{listed:#}");
    let preview = json(&allstop(&place, &format!("stop {id} --preview --json")).ok());
    assert_eq!(
        preview["receipt"]["items"][1]["state"], "still_running",
        "{preview}"
    );
    let stopped = json(&allstop(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["session_id"], id, "{stopped}");
    assert_eq!(stopped["is_command"], true, "{stopped}");
    assert_eq!(ended_by(&stopped["receipt"]).0, "stopped", "{stopped}");
    wait_for_no_sleeper(&place);
    // The client has this receipt too.
    let report = user.report("receipt", &json!({"id": id}));
    assert_eq!(report["receipt"]["stop_id"], stopped["receipt"]["stop_id"]);
    let by = report["receipt"]["cause"]["by"].as_str().expect("a name");
    assert!(by.starts_with("allstop stop in process"), "{report}");
    assert_eq!(allstop(&place, &format!("stop {id}")).code, 2);
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn stop_of_all_stops_the_commands_and_not_the_server() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    background(&place, &mut user);
    // A command has no turn.
    let turns = json(&allstop(&place, "stop --all --extent turn --json").ok());
    assert_eq!(turns["stops"], json!([]), "{turns}");
    let stopped = json(&allstop(&place, "stop --all --json").ok());
    let stops = stopped["stops"].as_array().expect("a list");
    assert_eq!(stops.len(), 1, "{stopped}");
    assert_eq!(stops[0]["receipt"]["quiet"], true, "{stopped}");
    wait_for_no_sleeper(&place);
    let report = user.report("exec", &json!({"command": "echo on"}));
    assert_eq!(report["output"], "on\n");
    user.close();
    place.assert_nothing_runs();
}

/// Regression for the socket of a killed server.
#[test]
fn socket_of_a_killed_server_is_removed() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    background(&place, &mut user);
    user.end_by(Signal::KILL);
    wait_for_no_sleeper(&place);
    let listed = json(&allstop(&place, "ps --json").ok());
    assert_eq!(listed["processes"], json!([]), "{listed}");
    assert_eq!(listed["problems"], json!([]), "{listed}");
    let folder = place.path("run").join("allstop");
    let left: Vec<_> = std::fs::read_dir(folder).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
