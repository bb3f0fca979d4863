//! One open session and its clients, which are programs that use a Copilot SDK.

mod advance_answers;
mod ask_user;
mod attached_clients;
mod attendance;
mod auto_mode;
mod auto_mode_requests;
mod auto_model;
mod canvas_requests;
mod canvases;
mod client_facts;
mod client_tools;
mod client_work;
mod command_queue;
mod credit_limit;
mod declined_questions;
mod event_copy;
mod exit_plan;
mod feed;
mod fixed_settings;
mod forms;
mod hooks;
mod ignored_parameters;
mod opening;
mod plugin_servers;
mod program_files;
mod program_tokens;
mod prompt_sections;
mod rejection_stop;
mod session_choice;
mod session_files;
mod session_models;
mod session_plugins;
mod session_servers;
mod start_order;
mod tool_requests;
mod unanswered_requests;
mod workspace_state;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CallId, Cause, Extent, MessageId, Receipt, SessionId, Timestamp, TurnNumber};
use allstop_model::ReasoningEffort;
use allstop_runtime::{Definitions, ProjectInstructions};
use allstop_scope::{Scope, StopRequest};
use allstop_session::{FormClient, Session, StopTarget};
use allstop_tools::PermissionAnswer;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, broadcast};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use attached_clients::{AttachedClient, AttachedClients, ClientOptions, FeedHandle};
pub(crate) use auto_mode::SwitchConsent;
pub(crate) use canvases::{CanvasProvider, ClientCanvases, DeclaredCanvas, OpenCanvas};
pub(crate) use client_facts::{ClientFacts, SessionNote};
pub(crate) use client_tools::{DeclaredTool, ToolSelection};
pub(crate) use command_queue::{COMPACT, ClientCommandQueue};
pub(crate) use credit_limit::SessionLimits;
pub(crate) use feed::now;
pub(crate) use fixed_settings::FixedSettings;
pub(crate) use ignored_parameters::SessionWarnings;
pub(crate) use opening::OpenMode;
pub(crate) use plugin_servers::PluginServers;
pub(crate) use program_tokens::ProgramTokens;
pub(crate) use prompt_sections::{RequestedPrompt, SectionChanges};
pub(crate) use session_choice::{ResumeChoice, SessionChoice};
pub(crate) use session_files::{PLAN, SessionFileStore, WORKSPACE_FILES};
pub(crate) use session_servers::SessionServers;
pub(crate) use start_order::{StartInProgress, StartOrder};
pub(crate) use unanswered_requests::UnansweredRequests;
pub(crate) use workspace_state::{ClientMode, NameChange, WorkspaceState};

use crate::secret_filter::SecretFilter;
use crate::translate::{HostEvent, PersistedEvent};
use auto_mode::AutoModeQuestions;
use canvases::OpenCanvases;
use client_tools::ClientTools;
use declined_questions::DeclinedQuestions;
use ignored_parameters::IgnoredParameters;
use session_models::SessionModels;
use workspace_state::MODEL_CHANGE;

/// Maximum wait until the clients have received the last events of a closed session.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

/// An open session.
#[derive(Debug)]
pub(crate) struct HostedSession {
    pub(crate) session: Session,
    pub(crate) tools: Arc<ClientTools>,
    attached_clients: Arc<AttachedClients>,
    declined: DeclinedQuestions,
    /// Present if the questions of MCP servers stay open for an answer.
    form_client: Mutex<Option<FormClient>>,
    pub(crate) facts: Arc<ClientFacts>,
    pub(crate) state: Arc<WorkspaceState>,
    /// Plan and files of the session.
    pub(crate) files: Arc<dyn SessionFileStore>,
    pub(crate) pending: UnansweredRequests,
    pub(crate) auto_mode: Arc<AutoModeQuestions>,
    models: SessionModels,
    /// Requests for the tokens of these servers.
    mcp_tokens: Arc<ProgramTokens>,
    pub(crate) commands: ClientCommandQueue,
    pub(crate) starts: StartOrder,
    /// Permit for the comparison of files, one at a time: its result can be large.
    pub(crate) comparison: Semaphore,
    canvases: Arc<OpenCanvases>,
    message_ids: Mutex<ulid::Generator>,
    /// MCP servers of the session.
    pub(crate) servers: Option<SessionServers>,
    /// Skills of the session, with the disabled skills.
    pub(crate) skills: Definitions,
    pub(crate) opened_at: Timestamp,
    system_prompt_bytes: usize,
    /// Files with the project's instructions in the system prompt.
    pub(crate) instructions: ProjectInstructions,
    host_events: broadcast::Sender<HostEvent>,
    /// Scope of the feeds, which outlive the session's own work.
    scope: Scope,
    /// Feeds that have not ended.
    feeds: TaskTracker,
    /// Ends the forwarding of tool requests after the last tool call of the session.
    no_more_calls: CancellationToken,
    /// A turn, and the calls of this turn that clients have cancelled individually. If a client cancels such a call
    /// again, the answer reports that no call was cancelled.
    cancelled: Mutex<(TurnNumber, HashSet<CallId>)>,
    ignored: Arc<IgnoredParameters>,
    choice: SessionChoice,
    settings: FixedSettings,
    version: Arc<str>,
    /// Secret values, which no message contains.
    pub(crate) secrets: Arc<SecretFilter>,
    /// Answer to a permission question that no client answers.
    default_answer: PermissionAnswer,
}

impl HostedSession {
    pub(crate) fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// Returns the name of the session's model; `None` if neither the configuration nor a client has chosen a model.
    pub(crate) fn model_name(&self) -> Option<&Arc<str>> {
        let auto_model = self.models.auto_model.as_ref();
        let switched = auto_model.and_then(|models| models.switched_name());
        switched.or(self.choice.model_name.as_ref())
    }

    /// Limits of the cost; `None` without a limit.
    pub(crate) fn limits(&self) -> Option<SessionLimits> {
        let limits = self.choice.limits;
        limits.max_ai_credits.is_some().then_some(limits)
    }

    /// MCP servers of the plugins; `None` if the plugins have none.
    pub(crate) fn plugin_servers(&self) -> Option<&Arc<PluginServers>> {
        self.servers.as_ref()?.of_plugins()
    }

    pub(crate) fn reasoning_effort(&self) -> Option<ReasoningEffort> {
        self.choice.reasoning_effort
    }

    /// Working directory of the session.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.settings.working_directory.as_deref()
    }

    /// Returns the parts of the session, with the tools that clients have declared since it was opened.
    pub(crate) fn choice(&self) -> SessionChoice {
        let mut choice = SessionChoice {
            declared: Some(self.tools.declared()),
            ..self.choice.clone()
        };
        if let Some(models) = &self.models.auto_model {
            models.apply_to(&mut choice);
        }
        choice
    }

    pub(crate) fn attached_clients(&self) -> Vec<AttachedClient> {
        self.attached_clients.all()
    }

    /// Describes the tools of the session; `None` before the first turn.
    pub(crate) fn tool_infos(&self) -> Option<Vec<Value>> {
        self.tools.infos()
    }

    /// Size of the system prompt in bytes.
    pub(crate) fn system_prompt_bytes(&self) -> usize {
        self.system_prompt_bytes
    }

    /// Slash commands of the clients.
    pub(crate) fn client_commands(&self) -> Vec<Value> {
        self.attached_clients.commands()
    }

    /// Returns the first setting whose requested value differs from the value of the session.
    pub(crate) fn difference(&self, choice: &SessionChoice) -> Option<&'static str> {
        let mut requested = choice.requested.clone();
        if choice.model_name.as_ref() == self.model_name() {
            // Another name for the same model, such as a name that the server replaces by the configured model.
            requested.model = None;
        }
        self.settings.difference(&requested)
    }

    /// Subscribes to the events that are not among the events of the session itself.
    pub(crate) fn host_events(&self) -> broadcast::Receiver<HostEvent> {
        self.host_events.subscribe()
    }

    pub(crate) fn send_host_event(&self, event: HostEvent) {
        // If no client is attached, the event is not needed.
        drop(self.host_events.send(event));
    }

    /// Warns the clients of each parameter of this method that has no effect, once. Later openings of the session in this
    /// server do not repeat the warnings.
    pub(crate) fn warn_of_ignored(&self, method: &str, others: &Map<String, Value>) {
        for message in self.ignored.warnings(method, others) {
            self.send_host_event(HostEvent::NotOffered { message });
        }
    }

    /// Sends an event that the history does not contain to all clients.
    pub(crate) fn send_ephemeral(&self, kind: &'static str, data: Value) {
        self.send_host_event(HostEvent::Ephemeral { kind, data });
    }

    /// Records that the handler of a client has rejected a request.
    pub(crate) fn note_rejected(&self, request: &str) {
        if let Some(call) = self.tools.call_of(request) {
            self.facts.add_rejected(&call);
        }
    }

    /// Adds an event to the history, and sends it to all clients. Returns the id of the event.
    pub(crate) fn note(&self, kind: &'static str, data: Value) -> Uuid {
        let note = self.add_note(kind, data);
        PersistedEvent::note(&note).at(self.id(), now(), None).id
    }

    fn add_note(&self, kind: &'static str, data: Value) -> SessionNote {
        let note = self.facts.add_note(self.session.last_turn(), kind, data);
        self.send_host_event(HostEvent::Noted(note.clone()));
        note
    }

    /// Adds the event of a change of the model to the history, also of later openings, and sends it to all clients.
    ///
    /// # Cancel safety
    /// If the future is dropped, the history of later openings may lack the event.
    pub(crate) async fn note_model_change(&self, data: Value) {
        let note = self.add_note(MODEL_CHANGE, data);
        if let Err(error) = self.state.add_model_change(&note).await {
            let message =
                format!("the history of the session loses a change of its model: {error}");
            let message = message.into();
            self.send_host_event(HostEvent::NotOffered { message });
        }
    }

    /// Records that a call of the running turn was cancelled by its id. Returns false if this was already recorded.
    pub(crate) fn note_cancelled(&self, call: &CallId) -> bool {
        let turn = self.session.last_turn();
        let mut cancelled = self.cancelled.lock();
        if cancelled.0 != turn {
            // After a turn was rolled back, a new turn can reuse the ids of its calls.
            *cancelled = (turn, HashSet::new());
        }
        cancelled.1.insert(call.clone())
    }

    /// Stops all work of the session, waits until its clients have received the last events, and closes the session.
    pub(crate) async fn close(&self, cause: Cause) -> Arc<Receipt> {
        let stopping = self.session.stop(&StopTarget::Session, cause.clone());
        let receipt = stopping.receipt().await;
        // The end of the servers withdraws their requests for tokens, and the clients receive this as a last event.
        if let Some(servers) = &self.servers {
            servers.close().await;
        }
        self.session.close().await;
        self.no_more_calls.cancel();
        // The feeds end after they have sent the last events.
        self.feeds.close();
        let _sent_or_late = timeout(LAST_EVENTS_MAX, self.feeds.wait()).await;
        let request = StopRequest::new(Extent::Subtree, cause).grace(Duration::ZERO);
        drop(self.scope.stop(request).receipt().await);
        self.scope.close();
        receipt
    }

    /// Creates an id for a message or a command in the format of the protocol. It is greater than all earlier ids of the
    /// open session.
    pub(crate) fn new_message_id(&self) -> MessageId {
        let mut ids = self.message_ids.lock();
        // The numbers of a millisecond practically never run out. The order of two ids is then lost.
        let id = ids
            .generate()
            .unwrap_or_else(|_used_up| ulid::Ulid::generate());
        MessageId::new(Uuid::from_u128(id.0).to_string())
    }
}
