//! Tools whose handlers run in the clients of a session, and the selection of the built-in tools.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use allstop_agent::SubAgentToolForm;
use allstop_core::Effect;
use allstop_runtime::SessionTools;
use allstop_tools::external::{
    Delivery, ExternalHandler, ExternalOptions, ExternalRequest, LateAnswer, RequestId,
};
use allstop_tools::{
    ExternalEvent, ExternalRequests, Tool, ToolError, ToolOutput, ToolSource, ToolSpec,
    external_tools,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask_user::AskUserTool;
use super::attached_clients::AttachedClients;
use super::exit_plan::{ExitPlanTool, PlanExit};
use super::hooks::{HookRequests, HookedMcpTool};
use crate::builtin;
use crate::translate::ExternalCall;

/// Maximum number of cancelled requests that are remembered. If an answer belongs to a remembered request, the answer
/// is recognised as late.
const ENDED_MAX: usize = 1_024;

type LateAnswerHandler = Arc<dyn Fn(LateAnswer) + Send + Sync>;

/// A tool as declared by a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeclaredTool {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub parameters: Option<Value>,
    #[serde(default)]
    pub overrides_built_in_tool: Option<bool>,
    #[serde(default)]
    pub skip_permission: Option<bool>,
}

/// Selection of tools by name, or by kind: `builtin:*`, `mcp:*`, `custom:*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolSelection {
    pub available: Option<Vec<String>>,
    pub excluded: Vec<String>,
    /// Tools of the selected agent; `None` for all tools.
    pub of_agent: Option<Vec<String>>,
}

impl ToolSelection {
    fn allows(&self, kind: &str, name: &str) -> bool {
        // The official runtime separates the names of a server and of its tool by `-` or `/`.
        let is_of_server = |pattern: &str| {
            let parts = name.split_once("__").filter(|_| kind == "mcp");
            parts.is_some_and(|(server, tool)| {
                let rest = pattern.strip_prefix(server);
                let rest = rest.and_then(|rest| rest.strip_prefix(['-', '/']));
                rest.is_some_and(|rest| rest == "*" || rest == tool)
            })
        };
        let is_meant = |pattern: &String| {
            let (of_kind, of_name) = pattern.split_once(':').unwrap_or((kind, pattern));
            of_kind == kind && (of_name == "*" || of_name == name || is_of_server(of_name))
        };
        let is_available = |patterns: &Vec<String>| patterns.iter().any(is_meant);
        self.available.as_ref().is_none_or(is_available)
            && self.of_agent.as_ref().is_none_or(is_available)
            && !self.excluded.iter().any(is_meant)
    }
}

/// Tools of a session's clients.
#[derive(Debug)]
pub(crate) struct ClientTools {
    filter: ToolSelection,
    attached_clients: Arc<AttachedClients>,
    asks_user: bool,
    state: Mutex<ClientToolsState>,
    version: AtomicU64,
    on_late_answer: Arc<LateAnswerSlot>,
}

#[derive(Default)]
struct LateAnswerSlot(OnceLock<LateAnswerHandler>);

impl std::fmt::Debug for LateAnswerSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LateAnswerSlot")
    }
}

#[derive(Debug, Default)]
struct ClientToolsState {
    declared: Vec<DeclaredTool>,
    tools: Vec<Arc<dyn Tool>>,
    /// Descriptions of the offered built-in tools; `None` before the first turn, which opens the agent.
    builtin: Option<Vec<Value>>,
    servers: Option<Arc<dyn ToolSource>>,
    /// Requests to the clients' handlers that are not answered yet.
    pending: HashMap<Arc<str>, PendingExternal>,
    by_request: HashMap<(u64, RequestId), Arc<str>>,
    ended: VecDeque<(Arc<str>, ExternalHandler, RequestId)>,
}

#[derive(Debug)]
struct PendingExternal {
    handler: ExternalHandler,
    id: RequestId,
    key: (u64, RequestId),
    call: ExternalCall,
}

/// Requests for the tools of one declaration. After a new declaration, the handlers of the old declaration still answer
/// calls of the old tools.
#[derive(Debug)]
pub(crate) struct ToolGeneration {
    number: u64,
    requests: ExternalRequests,
}

impl ClientTools {
    pub(crate) fn new(
        filter: ToolSelection,
        attached_clients: Arc<AttachedClients>,
        asks_user: bool,
    ) -> Self {
        Self {
            filter,
            attached_clients,
            asks_user,
            state: Mutex::default(),
            version: AtomicU64::new(0),
            on_late_answer: Arc::default(),
        }
    }

    /// Replaces the declared tools. `None` if the declaration is unchanged.
    pub(crate) fn declare(&self, declared: Vec<DeclaredTool>) -> Option<ToolGeneration> {
        let mut state = self.state.lock();
        if state.declared == declared {
            return None;
        }
        let specs = declared
            .iter()
            .filter(|tool| self.filter.allows("custom", &tool.name))
            .map(spec_of);
        let slot = Arc::clone(&self.on_late_answer);
        let options = ExternalOptions::default()
            // The SDKs drop the answer of a cancelled handler.
            .confirms_cancellation(false)
            .on_late_answer(Arc::new(move |late| {
                if let Some(send_late) = slot.0.get() {
                    send_late(late);
                }
            }));
        let (tools, requests) = external_tools(specs.collect(), options);
        (state.declared, state.tools) = (declared, tools);
        let number = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        Some(ToolGeneration { number, requests })
    }

    /// Returns the declared tools.
    pub(crate) fn declared(&self) -> Vec<DeclaredTool> {
        self.state.lock().declared.clone()
    }

    /// Describes the tools that the agent has in addition to its sub-agents and skills; `None` before the first turn.
    pub(crate) fn infos(&self) -> Option<Vec<Value>> {
        let state = self.state.lock();
        let own = state.tools.iter().map(|tool| tool_info(&**tool));
        let mut infos: Vec<_> = state.builtin.clone()?.into_iter().chain(own).collect();
        let servers = state.servers.iter().flat_map(|servers| servers.tools());
        let offered = servers.filter(|tool| self.filter.allows("mcp", &tool.spec().name));
        infos.extend(offered.map(|tool| tool_info(&*tool)));
        Some(infos)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.state
            .lock()
            .declared
            .iter()
            .any(|tool| tool.name == name)
    }

    /// True if the model can start sub-agents.
    pub(crate) fn has_sub_agents(&self) -> bool {
        self.filter.allows("builtin", builtin::TASK) && !self.has(builtin::TASK)
    }

    pub(crate) fn skips_permission(&self, name: &str) -> bool {
        let state = self.state.lock();
        let tool = state.declared.iter().find(|tool| tool.name == name);
        tool.is_some_and(|tool| tool.skip_permission == Some(true))
    }

    /// Returns the unanswered requests, for a client that attaches later.
    pub(crate) fn pending(&self) -> Vec<ExternalCall> {
        let state = self.state.lock();
        let pending = state.pending.values();
        // A stop may have cancelled a request, and the event of this cancellation is still in its queue.
        let open = pending.filter(|pending| pending.handler.is_open(pending.id));
        open.map(|pending| pending.call.clone()).collect()
    }

    /// Returns the call of an unanswered request.
    pub(crate) fn call_of(&self, request: &str) -> Option<Arc<str>> {
        let state = self.state.lock();
        let pending = state.pending.get(request)?;
        Some(Arc::clone(&pending.call.call_id))
    }

    /// Answers a request. Only the first answer counts.
    pub(crate) fn answer(&self, request: &str, answer: Result<ToolOutput, ToolError>) -> Delivery {
        let mut state = self.state.lock();
        let Some(pending) = state.pending.remove(request) else {
            let ended = state.ended.iter().find(|(id, ..)| **id == *request);
            let ended = ended.map(|(_, handler, id)| (handler.clone(), *id));
            drop(state);
            return match ended {
                Some((handler, id)) => match handler.answer(id, answer) {
                    // `Unknown` means that the request was answered before, or that the code below has removed it. In
                    // both cases the call had ended.
                    Delivery::Unknown => Delivery::Late,
                    delivery => delivery,
                },
                None => Delivery::Unknown,
            };
        };
        state.by_request.remove(&pending.key);
        drop(state);
        pending.handler.answer(pending.id, answer)
    }

    fn requested(
        &self,
        generation: u64,
        handler: &ExternalHandler,
        request: ExternalRequest,
    ) -> ExternalCall {
        let request_id: Arc<str> = ulid::Ulid::generate().to_string().into();
        let call = ExternalCall {
            request_id: Arc::clone(&request_id),
            call_id: request.call_id.as_str().into(),
            tool: request.name,
            arguments: request.arguments,
            trace: request.trace,
        };
        let pending = PendingExternal {
            handler: handler.clone(),
            id: request.request_id,
            key: (generation, request.request_id),
            call: call.clone(),
        };
        let mut state = self.state.lock();
        state
            .by_request
            .insert(pending.key, Arc::clone(&request_id));
        state.pending.insert(request_id, pending);
        call
    }

    fn cancelled(&self, generation: u64, id: RequestId) -> Option<Arc<str>> {
        let mut state = self.state.lock();
        let request_id = state.by_request.remove(&(generation, id))?;
        if let Some(pending) = state.pending.remove(&request_id) {
            state.end(Arc::clone(&request_id), &pending);
        }
        Some(request_id)
    }
}

impl ClientToolsState {
    fn end(&mut self, request_id: Arc<str>, pending: &PendingExternal) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended
            .push_back((request_id, pending.handler.clone(), pending.id));
    }
}

/// Next event for the clients, about a request for a tool of one declaration.
#[derive(Debug)]
pub(crate) enum GenerationEvent {
    Requested(ExternalCall),
    Cancelled(Arc<str>),
}

impl ToolGeneration {
    /// Returns the next event; `None` after the tools are closed for good.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self, tools: &ClientTools) -> Option<GenerationEvent> {
        loop {
            match self.requests.next().await? {
                ExternalEvent::Call(request) => {
                    let handler = self.requests.handler();
                    let call = tools.requested(self.number, &handler, request);
                    return Some(GenerationEvent::Requested(call));
                }
                ExternalEvent::Cancelled { request_id, .. } => {
                    if let Some(id) = tools.cancelled(self.number, request_id) {
                        return Some(GenerationEvent::Cancelled(id));
                    }
                }
            }
        }
    }
}

/// Describes a tool in the form of the protocol.
pub(crate) fn tool_info(tool: &dyn Tool) -> Value {
    let spec = tool.spec();
    json!({
        "name": spec.name,
        "description": spec.description,
        "input_schema": spec.input_schema,
    })
}

fn spec_of(tool: &DeclaredTool) -> ToolSpec {
    let any = || json!({ "type": "object" });
    ToolSpec::new(
        tool.name.as_str(),
        tool.description.as_deref().unwrap_or_default(),
        Arc::new(
            tool.parameters
                .clone()
                .filter(Value::is_object)
                .unwrap_or_else(any),
        ),
    )
    // The protocol does not specify the effect of a repeated call, so the worst effect is assumed.
    .effect(Effect::Irreversible)
    .parallel(true)
}

/// Tools of the clients and of the MCP servers together.
#[derive(Debug)]
struct AllTools {
    clients: Arc<ClientTools>,
    servers: Arc<dyn ToolSource>,
    requests: HookRequests,
    plan_exit: Option<PlanExit>,
}

impl ToolSource for AllTools {
    fn version(&self) -> u64 {
        self.clients.version.load(Ordering::SeqCst) + self.servers.version()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.clients.state.lock().tools.clone();
        if self.clients.asks_user && self.clients.filter.allows("builtin", AskUserTool::NAME) {
            tools.push(Arc::new(AskUserTool::new(Arc::clone(
                &self.clients.attached_clients,
            ))));
        }
        if let Some(plan) = &self.plan_exit
            && self.clients.filter.allows("builtin", ExitPlanTool::NAME)
        {
            tools.push(Arc::new(ExitPlanTool::new(plan.clone())));
        }
        let servers = self.servers.tools().into_iter();
        let offered = servers.filter(|tool| self.clients.filter.allows("mcp", &tool.spec().name));
        tools.extend(offered.map(|tool| {
            Arc::new(HookedMcpTool::new(tool, self.requests.clone())) as Arc<dyn Tool>
        }));
        tools
    }
}

/// Gives the session the chosen built-in tools and the clients' tools.
#[derive(Debug)]
pub(crate) struct ChosenTools {
    pub(crate) clients: Arc<ClientTools>,
    /// Requests for the hook that chooses the metadata of calls to MCP servers.
    pub(crate) requests: HookRequests,
    /// Present if a client approves plans.
    pub(crate) plan_exit: Option<PlanExit>,
}

impl SessionTools for ChosenTools {
    fn builtin(&self, tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>> {
        let mut state = self.clients.state.lock();
        let own: HashSet<&str> = state
            .declared
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        let renamed = tools.into_iter().map(builtin::renamed);
        let offered: Vec<_> = renamed
            .filter(|tool| {
                let name = &*tool.spec().name;
                self.clients.filter.allows("builtin", name) && !own.contains(name)
            })
            .collect();
        state.builtin = Some(offered.iter().map(|tool| tool_info(&**tool)).collect());
        offered
    }

    fn has_sub_agents(&self) -> bool {
        self.clients.has_sub_agents()
    }

    fn sub_agent_form(&self) -> Option<SubAgentToolForm> {
        Some(builtin::renamed)
    }

    fn source(
        &self,
        servers: Arc<dyn ToolSource>,
        on_late_answer: LateAnswerHandler,
    ) -> Arc<dyn ToolSource> {
        // Has no effect if the session is opened again: the first callback of the session stays in use.
        drop(self.clients.on_late_answer.0.set(on_late_answer));
        self.clients.state.lock().servers = Some(Arc::clone(&servers));
        Arc::new(AllTools {
            clients: Arc::clone(&self.clients),
            servers,
            requests: self.requests.clone(),
            plan_exit: self.plan_exit.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(available: Option<&[&str]>, excluded: &[&str]) -> ToolSelection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ToolSelection {
            available: available.map(owned),
            excluded: owned(excluded),
            of_agent: None,
        }
    }

    #[test]
    fn filter_takes_names_and_kinds() {
        assert!(filter(None, &[]).allows("builtin", "bash"));
        let only = filter(Some(&["custom:*", "view"]), &["custom:evil"]);
        assert!(only.allows("custom", "weather") && only.allows("builtin", "view"));
        assert!(!only.allows("builtin", "bash") && !only.allows("custom", "evil"));
        assert!(!filter(Some(&[]), &[]).allows("builtin", "bash"));
        assert!(!filter(None, &["bash"]).allows("builtin", "bash"));
    }
}
