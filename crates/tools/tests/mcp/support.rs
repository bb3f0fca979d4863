//! An MCP server for tests, in a temporary folder. Its tools are called in the same way as by the agent loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, Cause, CauseKind, Extent, Receipt, SessionId};
use allstop_process::ContainmentChoice;
use allstop_scope::{RootOptions, Scope, ScopeOptions, Stop, StopRequest, WorkHandle, WorkSpec};
use allstop_tools::mcp::{
    McpOptions, McpServerConfig, McpServers, McpState, McpTools, McpTransport,
};
use allstop_tools::{
    CallLink, OutputFolder, Tool, ToolError, ToolInvocation, ToolOutput, ToolRegistry,
    ToolSource as _,
};
use serde_json::Value;

/// Grace period of a stop that must not end before the work.
pub(crate) const LONG_GRACE: Duration = Duration::from_secs(10);

pub(crate) struct Place {
    pub(crate) root: Scope,
    pub(crate) turn: Scope,
    pub(crate) servers: McpServers,
    temporary: Arc<tempfile::TempDir>,
}

/// A running call in a separate scope, as one item of a receipt.
pub(crate) struct Running {
    pub(crate) scope: Scope,
    pub(crate) handle: WorkHandle<Result<ToolOutput, ToolError>>,
}

impl Place {
    /// Starts one server, named `t`, in this mode.
    pub(crate) async fn new(mode: &str) -> Self {
        Self::with(mode, |_| {}).await
    }

    pub(crate) async fn with(mode: &str, change: impl FnOnce(&mut McpServerConfig)) -> Self {
        let place = Self::not_started(mode, change);
        place.servers.start(&place.root).await.unwrap();
        place
    }

    pub(crate) fn not_started(mode: &str, change: impl FnOnce(&mut McpServerConfig)) -> Self {
        let temporary = Arc::new(tempfile::tempdir().unwrap());
        let transport = McpTransport::Stdio {
            command: env!("CARGO_BIN_EXE_allstop-tools-mcp-server").into(),
            args: vec![temporary.path().join("log").into(), mode.into()],
            env: Vec::new(),
        };
        Self::of(temporary, transport, change)
    }

    pub(crate) async fn over_http(url: &str) -> Self {
        Self::over_http_with_key(url, "secret").await
    }

    pub(crate) async fn over_http_with_key(url: &str, key: &str) -> Self {
        let transport = McpTransport::Http {
            url: url.into(),
            headers: vec![("x-key".to_owned(), key.to_owned())],
        };
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let place = Self::of(folder, transport, |_| {});
        place.servers.start(&place.root).await.unwrap();
        place
    }

    fn of(
        temporary: Arc<tempfile::TempDir>,
        transport: McpTransport,
        change: impl FnOnce(&mut McpServerConfig),
    ) -> Self {
        let mut config = McpServerConfig::new("t", transport).unwrap();
        config.handshake_timeout = Duration::from_secs(10);
        change(&mut config);
        let options = McpOptions::new(temporary.path().to_owned(), temporary.path().join("pipes"))
            .containment(ContainmentChoice::GroupAndMarker)
            .login_folder(temporary.path().join("logins"));
        let root = Scope::root("process", RootOptions::single_runtime());
        let turn = root.child("turn", ScopeOptions::default()).unwrap();
        Self {
            root,
            turn,
            servers: McpServers::new(vec![config], options).unwrap(),
            temporary,
        }
    }

    /// Like [`Place::not_started`], in the folder of another place.
    pub(crate) fn not_started_in(
        folder: &Arc<tempfile::TempDir>,
        change: impl FnOnce(&mut McpServerConfig),
    ) -> Self {
        let nowhere = McpTransport::Http {
            url: "".into(),
            headers: Vec::new(),
        };
        Self::of(Arc::clone(folder), nowhere, change)
    }

    pub(crate) fn folder(&self) -> &Arc<tempfile::TempDir> {
        &self.temporary
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    /// Messages that the server received.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Cancellations that the server received, each with its reason.
    pub(crate) fn cancellations(&self) -> Vec<(Value, String)> {
        cancellations(&self.log())
    }

    pub(crate) fn state(&self) -> McpState {
        self.servers.all()[0].state()
    }

    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.source().tools()
    }

    pub(crate) fn source(&self) -> McpTools {
        self.servers
            .tools(&Arc::new(OutputFolder::new(self.path("spill"))))
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools().iter().any(|tool| &*tool.spec().name == name)
    }

    /// Number of messages of this method that the server received.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.log().matches(&format!("\"{method}\"")).count()
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let mut registry = ToolRegistry::new();
        for tool in self.tools() {
            registry.register(tool).unwrap();
        }
        Arc::clone(registry.find(name).unwrap().tool())
    }

    /// Starts a call like the agent loop.
    pub(crate) fn start(&self, name: &str, arguments: Value) -> Running {
        self.start_with(name, arguments, CallLink::default())
    }

    pub(crate) fn start_with(&self, name: &str, arguments: Value, link: CallLink) -> Running {
        let tool = self.tool(name);
        let work = WorkSpec::new(ItemKind::ToolCall, name).effect(tool.spec().effect);
        let options = ScopeOptions::default().unit(work.clone().id("call_1"));
        let scope = self.turn.child("call", options).unwrap();
        let invocation = ToolInvocation {
            session_id: SessionId::new("s"),
            call_id: CallId::new("call_1"),
            name: name.into(),
            arguments: Arc::new(arguments),
            scope: scope.clone(),
            trace: None,
            link,
            mcp_meta: allstop_tools::McpMeta::default(),
        };
        let handle = scope.spawn(work, |_| async move { tool.call(invocation).await });
        Running {
            handle: handle.unwrap(),
            scope,
        }
    }

    /// Runs a call from its start to its answer.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<String, String> {
        self.start(name, arguments).answer().await
    }

    /// Starts a call, and waits until the server has received it.
    pub(crate) async fn start_and_reach(&self, name: &str, arguments: Value) -> Running {
        let before = self.log().matches("\"tools/call\"").count();
        let running = self.start(name, arguments);
        wait_until("the server has the call", || {
            self.log().matches("\"tools/call\"").count() > before
        })
        .await;
        running
    }
}

impl Running {
    pub(crate) async fn answer(self) -> Result<String, String> {
        let joined = within(self.handle).await;
        match joined.expect("it was not dropped") {
            Ok(output) => Ok(output.content.to_string()),
            Err(error) => Err(error.message),
        }
    }

    /// Stops only this call. The grace period is long, so a delay of the machine does not decide the receipt.
    pub(crate) async fn stop(&self) -> Arc<Receipt> {
        self.stop_with(Some(LONG_GRACE)).await
    }

    /// Stops only this call, with this grace period.
    pub(crate) async fn stop_with(&self, grace: Option<Duration>) -> Arc<Receipt> {
        within(self.begin_stop(grace).receipt()).await
    }

    /// Begins a stop of only this call, with this grace period.
    pub(crate) fn begin_stop(&self, grace: Option<Duration>) -> Stop {
        let mut order = StopRequest::new(Extent::Call, Cause::new(CauseKind::User).detail("test"));
        order.grace = grace;
        self.scope.stop(order)
    }
}

/// Returns the cancellations among a server's received messages.
pub(crate) fn cancellations(log: &str) -> Vec<(Value, String)> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["method"] == "notifications/cancelled")
        .map(|message| {
            let reason = message["params"]["reason"].as_str().unwrap_or_default();
            (message["params"]["requestId"].clone(), reason.to_owned())
        })
        .collect()
}

/// Returns the only item of a receipt, as JSON.
#[track_caller]
pub(crate) fn only_item(receipt: &Receipt) -> Value {
    let [item] = receipt.items() else {
        panic!("not one item: {receipt:#?}");
    };
    serde_json::to_value(item).unwrap()
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it ends in time")
}

/// Waits for a change that a different process makes, by polling.
pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "timed out: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Path of a program in a downloaded part; `None` if this machine does not have the part.
#[expect(clippy::print_stdout, reason = "reports the skipped tests")]
pub(crate) fn part_program(part: &str, program: &str) -> Option<PathBuf> {
    let left_out = format!("{part}.left_out");
    let test = std::env::current_exe().unwrap();
    let mut parts = test.ancestors().map(|folder| folder.join("parts"));
    let parts = parts
        .find(|parts| {
            parts.join(part).join(".complete").is_file() || parts.join(&left_out).is_file()
        })
        .expect("the part is missing: run `cargo xtask parts` and try again");
    match std::fs::read_to_string(parts.join(left_out)) {
        Ok(why) => {
            println!("left out: {why}");
            None
        }
        Err(_) => Some(parts.join(part).join(program)),
    }
}
