//! Tools of a session in a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{CallId, SessionId};
use allstop_scope::{RootOptions, Scope, ScopeOptions};
use allstop_tools::{
    BackgroundHost, BackgroundRegistry, FolderAccess, OutputFolder, ShellConfig, ToolInvocation,
    ToolOutput, ToolRegistry, Workspace, builtin_tools,
};
use serde_json::{Value, json};

pub(crate) struct Session {
    pub(crate) temporary: tempfile::TempDir,
    pub(crate) root: Scope,
    pub(crate) turn: Scope,
    pub(crate) host: Arc<BackgroundRegistry>,
    pub(crate) tools: ToolRegistry,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self::with(|workspace| workspace, |shell| shell)
    }

    pub(crate) fn with(
        workspace: impl FnOnce(Workspace) -> Workspace,
        shell: impl FnOnce(ShellConfig) -> ShellConfig,
    ) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("work");
        let spill = temporary.path().join("spill");
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&spill).unwrap();
        let opened = Workspace::new(&folder)
            .unwrap()
            .allow(&spill, FolderAccess::Read)
            .unwrap();
        let root = Scope::root("session", RootOptions::single_runtime());
        let turn = root.child("turn", ScopeOptions::default()).unwrap();
        let jobs = root.child("background", ScopeOptions::default()).unwrap();
        let host = Arc::new(BackgroundRegistry::new(jobs));
        let config = shell(ShellConfig::new(
            &folder,
            Arc::new(OutputFolder::new(spill)),
        ));
        let mut tools = ToolRegistry::new();
        let as_host: Arc<dyn BackgroundHost> = Arc::clone(&host) as _;
        for tool in builtin_tools(&Arc::new(workspace(opened)), config, &as_host) {
            tools.register(tool).unwrap();
        }
        Self {
            temporary,
            root,
            turn,
            host,
            tools,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temporary.path().join("work").join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn invocation(tool: &str, arguments: Value, scope: &Scope) -> ToolInvocation {
        ToolInvocation {
            session_id: SessionId::new("s"),
            call_id: CallId::new("call_1"),
            name: tool.into(),
            arguments: Arc::new(arguments),
            scope: scope.clone(),
            trace: None,
            link: allstop_tools::CallLink::default(),
            mcp_meta: allstop_tools::McpMeta::default(),
        }
    }

    /// Calls a tool like the agent loop: with validated arguments and in a scope of the call. The call has ten seconds.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let output = self.output(tool, arguments).await?;
        Ok(output.content.to_string())
    }

    /// Like [`call`](Self::call), with the images of the answer.
    pub(crate) async fn output(&self, tool: &str, arguments: Value) -> Result<ToolOutput, String> {
        let tool_of_name = self.tools.find(tool).map_err(|error| error.message)?;
        tool_of_name
            .check_arguments(&arguments)
            .map_err(|error| error.message)?;
        let scope = self.turn.child("call", ScopeOptions::default()).unwrap();
        let call = tool_of_name
            .tool()
            .call(Self::invocation(tool, arguments, &scope));
        let limit = Duration::from_secs(10);
        let answer = tokio::time::timeout(limit, call)
            .await
            .expect("the call ends by itself");
        answer.map_err(|error| error.message)
    }

    /// Names in the folder, including temporary files.
    pub(crate) fn names(&self) -> Vec<String> {
        names_in(&self.path(""))
    }
}

pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits for a change that a different process makes, by polling.
pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "timed out: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

/// Asserts that an answer is an error, and that the error contains this text.
#[track_caller]
pub(crate) fn refused(answer: Result<String, String>, says: &str) {
    match answer {
        Ok(answer) => panic!("not refused, but: {answer}"),
        Err(error) => assert!(error.contains(says), "{error:?} does not say {says:?}"),
    }
}

/// True if the process of `pid` runs. `pid` is the text that a command wrote to a file. A zombie that init has not
/// reaped yet does not count.
pub(crate) fn is_alive(pid: &str) -> bool {
    let identity = allstop_process::identity_of(pid.trim().parse().unwrap());
    identity.is_some_and(|identity| allstop_process::is_alive(&identity))
}

/// Calls every file tool with this path.
pub(crate) async fn with_every_tool(
    session: &Session,
    path: &str,
) -> Vec<(&'static str, Result<String, String>)> {
    let mut answers = Vec::new();
    for (tool, arguments) in [
        ("read", json!({"path": path})),
        ("write", json!({"path": path, "content": "x"})),
        ("edit", json!({"path": path, "old": "secret", "new": "x"})),
        ("list", json!({"path": path})),
        ("grep", json!({"path": path, "pattern": "secret"})),
    ] {
        answers.push((tool, session.call(tool, arguments).await));
    }
    answers
}
