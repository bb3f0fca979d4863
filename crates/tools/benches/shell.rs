//! Cost of a `shell` call, including its keeper (the small process that starts and watches the command), compared with
//! a bare `sh -c`.
//!
//! The benchmark runs its own binary as the keeper. The first call of a process also starts a keeper, so its time is
//! reported separately. The other times are measured on later calls.

use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use allstop_bench::{BenchSuite, Figure, timed};
use allstop_core::{CallId, SessionId};
use allstop_process::{ContainmentChoice, KeeperProgram, Keepers, keeper_main};
use allstop_scope::{RootOptions, Scope, ScopeOptions};
use allstop_tools::{
    BackgroundRegistry, CallLink, OutputFolder, ShellConfig, ShellTool, Tool as _, ToolInvocation,
};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

const KEEPER: &str = "keep-call";

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == KEEPER)
    {
        return keeper_main();
    }
    // Like in the binary, engines and session owners run on one runtime, and tools on another runtime.
    let (control, work) = (runtime(), runtime());
    let folder = tempfile::tempdir().expect("a folder");
    let program = KeeperProgram {
        executable: "/proc/self/exe".into(),
        args: vec![KEEPER.into()],
    };
    let scopes = |containment| {
        let _inside = control.enter();
        RootOptions::current()
            .control(control.handle().clone().into())
            .work(work.handle().clone().into())
            .containment(containment)
    };
    let shell = |keepers: &Arc<Keepers>| {
        let containment = ContainmentChoice::Keeper(Arc::clone(keepers));
        let root = Scope::root("bench", scopes(containment.clone()));
        let output = Arc::new(OutputFolder::new(folder.path()));
        let config = ShellConfig::new(folder.path(), output).containment(containment);
        let host = Arc::new(BackgroundRegistry::new(root.clone()));
        (root, ShellTool::new(config, host))
    };
    let call = |root: &Scope, shell: &ShellTool| {
        let scope = root.child("call", ScopeOptions::default());
        let invocation = ToolInvocation {
            session_id: SessionId::new("s"),
            call_id: CallId::new("call_1"),
            name: "shell".into(),
            arguments: Arc::new(json!({"command": "true"})),
            scope: scope.expect("nothing is stopped"),
            trace: None,
            link: CallLink::default(),
            mcp_meta: allstop_tools::McpMeta::default(),
        };
        let said = work.block_on(shell.call(invocation)).expect("it succeeds");
        assert_eq!(&*said.content, "[no output]");
    };
    let keepers = Keepers::new(program.clone());
    let (root, tool) = shell(&keepers);
    let mut suite = BenchSuite::from_args();
    suite.run(
        Figure::new("a shell call", || timed(|| call(&root, &tool)).0)
            .rounds(500)
            .against("bare sh", || timed(|| bare_sh(&work)).0)
            .ratio_at_most(2.0),
    );
    suite.run(
        Figure::new("the first shell call of a process", || {
            let (root, tool) = shell(&Keepers::new(program.clone()));
            timed(|| call(&root, &tool)).0
        })
        .rounds(100)
        .against("bare sh", || timed(|| bare_sh(&work)).0),
    );
    suite.finish()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}

/// Runs a command like a program without containment: starts the command, reads its output, and waits for its exit.
fn bare_sh(runtime: &Runtime) {
    runtime.block_on(async {
        let mut command = tokio::process::Command::new("/bin/sh");
        command.args(["-c", "true"]).stdin(Stdio::null());
        let output = command.output().await.expect("it starts");
        assert!(output.status.success());
    });
}
