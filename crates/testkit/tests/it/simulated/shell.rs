//! The real shell tool with a simulated system and a paused clock. Two runs have equal traces.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::ids::SessionId;
use allstop_core::{CallId, Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest};
use allstop_testkit::{Behaviour, SimulatedSystem};
use allstop_tools::{
    BackgroundHost, BackgroundRegistry, OutputFolder, ShellConfig, ShellTool, Tool as _,
    ToolInvocation,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ms, on_paused_time};

struct Session {
    folder: tempfile::TempDir,
    system: SimulatedSystem,
    root: Scope,
    host: Arc<BackgroundRegistry>,
    shell: ShellTool,
}

impl Session {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let system = SimulatedSystem::new();
        // The shell inherits the containment of the scope.
        let options = RootOptions::single_runtime().containment(system.containment());
        let root = Scope::root("session", options);
        let jobs = root.child("background", ScopeOptions::default());
        let host = Arc::new(BackgroundRegistry::new(jobs.expect("nothing is stopped")));
        let config = ShellConfig::new("/work", Arc::new(OutputFolder::new(folder.path())));
        Self {
            shell: ShellTool::new(config, Arc::clone(&host) as _),
            folder,
            system,
            root,
            host,
        }
    }

    async fn call(&self, arguments: Value) -> Result<String, String> {
        let scope = self.root.child("call", ScopeOptions::default());
        let invocation = ToolInvocation {
            session_id: SessionId::new("s"),
            call_id: CallId::new("call_1"),
            name: "shell".into(),
            arguments: Arc::new(arguments),
            scope: scope.expect("nothing is stopped"),
            trace: None,
            link: allstop_tools::CallLink::default(),
            mcp_meta: allstop_tools::McpMeta::default(),
        };
        let answer = self.shell.call(invocation).await;
        answer
            .map(|output| output.content.to_string())
            .map_err(|error| error.message)
    }
}

/// A server that ignores SIGTERM, as the child of a shell that does not ignore SIGTERM.
fn stubborn_server() -> Behaviour {
    let server = Behaviour {
        prints: vec![(ms(30), "listening\n".into())],
        term_takes: None,
        kill_takes: ms(5),
        ..Behaviour::server("")
    };
    Behaviour {
        children: vec![("node server.js".into(), server)],
        ..Behaviour::server("> dev\n")
    }
}

/// Plays five cases: a command in the foreground, a time limit, background work, work that remains, and a final stop.
/// Returns all visible events.
async fn play() -> String {
    let (began, session) = (Instant::now(), Session::new());
    let system = &session.system;
    system.program(
        "make",
        Behaviour {
            prints: vec![(ms(0), "cc a.c\n".into()), (ms(40_000), "ld\n".into())],
            exits: Some((ms(90_000), 2)),
            ..Behaviour::default()
        },
    );
    system.program("npm run dev", stubborn_server());
    let child = Behaviour {
        exits: Some((ms(500), 0)),
        ..Behaviour::server("left\n")
    };
    system.program(
        "leave &",
        Behaviour {
            children: vec![("sleep 0.5".into(), child)],
            ..Behaviour::default()
        },
    );
    let (built, cut) = tokio::join!(
        session.call(json!({"command": "make"})),
        session.call(json!({"command": "npm run dev", "timeout_s": 1.5})),
    );
    let background = session
        .call(json!({"command": "npm run dev", "background": true}))
        .await;
    let left = session.call(json!({"command": "leave &"})).await;
    tokio::time::sleep(ms(1000)).await;
    let mut trace = format!("{built:?}\n{cut:?}\n{background:?}\n{left:?}\n");
    let order = StopRequest::new(Extent::Session, Cause::new(CauseKind::User));
    let receipt = session.root.stop(order).await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(system.running().is_empty());
    for work in session.host.works() {
        let ended = work.ended().await;
        let _ = writeln!(trace, "{} {:?} {ended:?}", work.id, work.output());
    }
    let _ = writeln!(trace, "{:?}", receipt.items());
    for event in system.history() {
        let (at, tree, command) = (event.at - began, event.tree, event.command);
        let _ = writeln!(trace, "{at:?} tree {tree} `{command}`: {:?}", event.kind);
    }
    trace.replace(&*session.folder.path().to_string_lossy(), "FOLDER")
}

#[test]
fn two_runs_are_one() {
    let first = on_paused_time(play());
    for said in [
        r#"Ok("cc a.c\nld\n\n[exit code 2]")"#,
        "> dev\\nlistening\\n\\n[the command exceeded its limit of 1.5 s: it and everything it started were stopped]",
        "bg_1 runs in the background",
        "[1 process still runs in the background as bg_2: `sleep 0.5`]",
        "3.5s tree 2 `npm run dev`: Signalled(Kill)",
        "3.505s tree 2 `npm run dev`: Emptied",
        r#"bg_1 "> dev\nlistening\n" BackgroundEnd { state: Stopped { how: Sigkill"#,
        r#"bg_2 "left\n" BackgroundEnd { state: Finished { after_ms: None }, exit_code: Some(0)"#,
    ] {
        assert!(first.contains(said), "{said:?} is not in:\n{first}");
    }
    for _ in 0..20 {
        assert_eq!(first, on_paused_time(play()));
    }
}
