//! `allstop mcp`: the MCP servers in the user's configuration.

use std::fs;

use crate::support::mcp_server::shell_server;
use crate::support::{Ended, FACT_MAX, Place, Signal};

/// Tools of the server.
const TOOLS: &str = r#"[{"name":"look","inputSchema":{"type":"object"}},{"name":"find","inputSchema":{"type":"object"}}]"#;

fn mcp(place: &Place, args: &str) -> Ended {
    place.allstop().arg("mcp").args(args).end()
}

#[test]
fn servers_are_added_and_removed_and_comments_stay() {
    let place = Place::new();
    let folder = place.path("home/.config/allstop");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("allstop.toml");
    let before = "# mine\n[limits]\nmax_steps = 9 # enough\n";
    fs::write(&file, before).unwrap();
    mcp(&place, "add files --env A=1 -- server --all .").ok();
    mcp(
        &place,
        "add tickets --url http://127.0.0.1:1/mcp --bearer-token-env T",
    )
    .ok();
    let again = mcp(&place, "add files -- other");
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("allstop mcp remove files"));
    let text = fs::read_to_string(&file).unwrap();
    let files = "[mcp.servers.files]\ncommand = \"server\"\nargs = [\"--all\", \".\"]\nenv = { A = \"1\" }\n";
    assert!(text.starts_with(before) && text.contains(files), "{text}");
    let listed = mcp(&place, "list").ok().stdout;
    assert!(
        listed.contains("files    server --all .\ntickets  http://127.0.0.1:1/mcp\n"),
        "{listed}"
    );
    mcp(&place, "remove files").ok();
    mcp(&place, "remove tickets").ok();
    assert_eq!(mcp(&place, "remove tickets").code, 2);
    assert!(!fs::read_to_string(&file).unwrap().contains("servers."));
    assert_eq!(mcp(&place, "add a__b -- x").code, 2);
    let refused = mcp(&place, "add tickets --url tickets.example.com");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("http://"), "{refused:?}");
}

/// Regression: of twelve changes at the same moment, three were in the file.
#[test]
fn changes_at_once_are_all_kept() {
    let place = Place::new();
    let all: Vec<String> = (0..12).map(|number| format!("server{number}")).collect();
    let add = |name: &String| {
        let add = place.allstop().args("mcp add").arg(name);
        add.args("-- true").start()
    };
    let running: Vec<_> = all.iter().map(add).collect();
    for adding in running {
        adding.end(FACT_MAX).ok();
    }
    let listed = mcp(&place, "list").ok().stdout;
    let missing: Vec<_> = all.iter().filter(|name| !listed.contains(*name)).collect();
    assert_eq!(missing, Vec::<&String>::new(), "{listed}");
}

#[test]
fn test_lists_the_tools_and_leaves_nothing_running() {
    let place = Place::new();
    let server = place.file("server.sh", shell_server("", TOOLS, "continue"));
    mcp(&place, &format!("add files -- sh {}", server.display())).ok();
    mcp(&place, "add gone -- false").ok();
    let tested = mcp(&place, "test files").ok().stdout;
    for part in [
        ": 2 tools\n  files__look\n  files__find\n",
        "no process and no connection is left; verified",
    ] {
        assert!(tested.contains(part), "{part:?} is not in {tested}");
    }
    place.assert_nothing_runs();
    let gone = mcp(&place, "test gone");
    assert_eq!(gone.code, 1);
    assert!(
        gone.stdout.contains("gone is not available"),
        "{}",
        gone.stdout
    );
    assert_eq!(mcp(&place, "test nope").code, 2);
}

#[test]
fn ctrl_c_ends_a_server_that_hangs() {
    let place = Place::new();
    mcp(&place, "add hangs -- sh -c").ok();
    let file = place.path("home/.config/allstop/allstop.toml");
    let script = format!("args = [\"-c\", \"echo x > begun; {}\"]", place.sleeper());
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("args = [\"-c\"]", &script)).unwrap();
    let running = place.allstop().args("mcp test hangs").start();
    let begun = place.work().join("begun");
    crate::support::eventually("the server", || begun.exists().then_some(()));
    assert_eq!(running.end_by(Signal::INT).code, 130);
    place.assert_nothing_runs();
}
