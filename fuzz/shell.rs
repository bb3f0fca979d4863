//! The decision of a policy about a shell command.

use std::cell::OnceCell;
use std::sync::Arc;

use allstop_scope::{RootOptions, Scope};
use allstop_tools::permission::PermissionMode;
use allstop_tools::{PermissionDecision, PermissionPolicy, ToolInvocation, ToolSpec};
use serde_json::json;

pub(crate) fn decide(policy: &PermissionPolicy, command: &str) -> PermissionDecision {
    thread_local!(static SHELL: OnceCell<(ToolSpec, Scope, tokio::runtime::Runtime)> = const { OnceCell::new() });
    SHELL.with(|shell| {
        let (spec, scope, _) = shell.get_or_init(shell_and_scope);
        policy.decide(
            spec,
            &ToolInvocation {
                session_id: "s".into(),
                call_id: "c".into(),
                name: "shell".into(),
                arguments: Arc::new(json!({ "command": command })),
                scope: scope.clone(),
                trace: None,
                link: allstop_tools::CallLink::default(),
                mcp_meta: allstop_tools::McpMeta::default(),
            },
            PermissionMode::Ask,
        )
    })
}

fn shell_and_scope() -> (ToolSpec, Scope, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers can be built");
    let entered = runtime.enter();
    let scope = Scope::root("turn", RootOptions::current());
    drop(entered);
    let spec = ToolSpec::new("shell", "", Arc::new(json!({}))).parallel(true);
    (spec, scope, runtime)
}
