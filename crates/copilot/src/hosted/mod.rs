//! One open session and its clients, which are programs that use a Copilot SDK.

mod ask_user;
mod attached_clients;
mod client_facts;
mod client_tools;
mod client_work;
mod feed;
mod fixed_settings;
mod forms;
mod hooks;
mod session_choice;
mod session_servers;
mod unanswered_requests;
mod workspace_state;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::turn::{CallTexts, StopPolicy};
use allstop_core::{
    CallId, Cause, CauseKind, Extent, MessageId, Receipt, SessionId, Timestamp, TurnNumber,
};
use allstop_log::{Version, read_session_end};
use allstop_model::ReasoningEffort;
use allstop_runtime::{
    Definitions, ProjectInstructions, QuestionRecipient, SessionSetup, StartError, System,
};
use allstop_scope::{Scope, ScopeOptions, StopRequest, WorkSpec};
use allstop_session::{FollowUp, FormClient, OpenQuestion, Session, StopTarget};
use allstop_tools::PermissionAnswer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use attached_clients::{AttachedClient, ClientOptions, FeedHandle};
pub(crate) use client_facts::{ClientFacts, SessionNote};
pub(crate) use client_tools::{DeclaredTool, ToolSelection};
pub(crate) use fixed_settings::FixedSettings;
pub(crate) use unanswered_requests::UnansweredRequests;
pub(crate) use workspace_state::{ClientMode, NameChange, WorkspaceState};

use crate::connection::{Client, ClientId};
use crate::server::CopilotServer;
use crate::translate::{EventTranslator, HostEvent, PersistedEvent, TranslatorOptions};
use attached_clients::{AttachedClients, DetachedClient};
use client_tools::{ChosenTools, ClientTools, GenerationEvent, ToolGeneration};
use feed::Feed;
pub(crate) use feed::now;
use hooks::ClientHooks;
pub(crate) use session_choice::{ResumeChoice, SessionChoice};
pub(crate) use session_servers::SessionServers;

/// Maximum number of unread host events ([`HostEvent`]) in a client's feed. This is far more than the number of
/// concurrent calls. If a feed misses events, it sends all unanswered tool requests again.
const HOST_EVENTS_MAX: usize = 1_024;

/// Folder of the workspace, in the folder of the session.
const WORKSPACE: &str = "workspace";

/// Maximum wait until the clients have received the last events of a closed session.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

/// An open session.
#[derive(Debug)]
pub(crate) struct HostedSession {
    pub(crate) session: Session,
    pub(crate) tools: Arc<ClientTools>,
    attached_clients: Arc<AttachedClients>,
    /// Present if the questions of MCP servers stay open for an answer.
    form_client: Mutex<Option<FormClient>>,
    pub(crate) facts: Arc<ClientFacts>,
    pub(crate) state: Arc<WorkspaceState>,
    pub(crate) pending: UnansweredRequests,
    /// MCP servers that the clients have named.
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
    choice: SessionChoice,
    settings: FixedSettings,
    version: Arc<str>,
    /// Answer to a permission question that no client answers.
    default_answer: PermissionAnswer,
}

/// Returns the working directory in which the session was created.
async fn recorded_folder(system: &System, id: &SessionId) -> Result<Option<PathBuf>, StartError> {
    let (state, _owner) = read_session_end(&**system.log(), id).await?;
    Ok(state.folder().map(|folder| PathBuf::from(&**folder)))
}

/// Reads the name, the mode and the workspace of a session.
async fn session_state(system: &System, id: &SessionId) -> WorkspaceState {
    let folder = system.session_folder(id).join(WORKSPACE);
    WorkspaceState::read(folder, system.config().permissions.mode).await
}

/// Reads the skills of a session.
async fn read_skills(
    server: &CopilotServer,
    choice: &SessionChoice,
    folder: &Path,
) -> Result<Definitions, StartError> {
    let (parts, folder) = (choice.parts.clone(), folder.to_owned());
    let spec = WorkSpec::new(ItemKind::Thread, "reading skills");
    let reading = server
        .connections()
        .spawn_blocking(spec, move |_| parts.read_skills(&folder));
    let reading = reading.map_err(|refused| StartError::stopped(&refused))?;
    // A panic of the reader is a bug, and the session then has no skills.
    Ok(reading.await.unwrap_or_default())
}

/// Wording of the official runtime about calls without a result. Programs and prompts refer to these words.
fn call_texts() -> CallTexts {
    CallTexts {
        denied: "The user rejected this tool call.".into(),
        unanswered: "Permission denied and could not request permission from user".into(),
        stopped: "The execution of this tool, or a previous tool was interrupted.".into(),
    }
}

/// Mode in which a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Create,
    Resume,
}

impl HostedSession {
    /// Opens a session.
    ///
    /// # Errors
    /// Returns the errors of [`System::new_session`] and [`System::resume_session`].
    pub(crate) async fn open(
        server: &CopilotServer,
        id: SessionId,
        mode: OpenMode,
        choice: &SessionChoice,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, StartError> {
        let system: &System = server.system();
        let attached_clients = Arc::new(AttachedClients::default());
        let asks_user = choice.client_options.user_input;
        let tools = ClientTools::new(
            choice.filter_of_agent(),
            Arc::clone(&attached_clients),
            asks_user,
        );
        let tools = Arc::new(tools);
        let generation = tools.declare(choice.declared.clone().unwrap_or_default());
        let folder = match (&choice.folder, mode) {
            (None, OpenMode::Resume) => recorded_folder(system, &id).await?,
            (folder, _) => folder.clone(),
        };
        let used_folder = folder.clone().unwrap_or_else(|| system.folder().to_owned());
        let state = match before {
            Some(before) => Arc::clone(&before.state),
            None => Arc::new(session_state(system, &id).await),
        };
        let skills = read_skills(server, choice, &used_folder).await?;
        let servers = SessionServers::start(system, &id, choice, &used_folder).await?;
        let host_events = broadcast::channel(HOST_EVENTS_MAX).0;
        let settings = FixedSettings {
            model: choice.model_name.clone(),
            provider: choice.requested.provider,
            system_message: Some(choice.system_prompt.clone()),
            available_tools: choice.filter.available.clone(),
            excluded_tools: Some(choice.filter.excluded.clone()),
            working_directory: Some(used_folder.clone()),
            instruction_directories: choice.requested.instruction_directories.clone(),
            further: choice.requested.further.clone(),
        };
        let hooks = ClientHooks {
            name: "copilot-client".into(),
            attached_clients: Arc::clone(&attached_clients),
            tools: Arc::clone(&tools),
            folder: used_folder,
            host_events: host_events.clone(),
        };
        let setup = SessionSetup::default()
            .recipient(QuestionRecipient::Subscribers)
            .model(choice.model.clone())
            .folder(folder)
            .system_prompt(choice.prompt_of_agent())
            .reasoning_effort(choice.reasoning_effort)
            .mode(state.permission_mode())
            .servers(servers.as_ref().map(SessionServers::all))
            .skills(choice.parts.enabled(&skills))
            .sub_agents(choice.parts.kinds(system, &choice.providers))
            .tools(Arc::new(ChosenTools(Arc::clone(&tools))))
            .hooks(vec![Arc::new(hooks)])
            .follow_up(FollowUp::Enqueue)
            // After an abort, the user of an SDK continues from the completed steps.
            .stop_policy(StopPolicy::Keep)
            .call_texts(Arc::new(call_texts()));
        let opened = match mode {
            OpenMode::Create => system.new_session(Some(id), setup).await,
            OpenMode::Resume => system.resume_session(id, setup).await,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(servers) = servers {
                    servers.close().await;
                }
                return Err(error);
            }
        };
        let label = format!("session/{}/clients", opened.session.id());
        let scope = server.connections().child(label, ScopeOptions::default());
        let hosted = Arc::new(Self {
            scope: scope.map_err(|refused| StartError::stopped(&refused))?,
            system_prompt_bytes: opened.prompt_bytes,
            instructions: opened.instructions,
            session: opened.session,
            tools,
            attached_clients,
            form_client: Mutex::new(None),
            facts: before
                .map(|before| Arc::clone(&before.facts))
                .unwrap_or_default(),
            state,
            pending: UnansweredRequests::default(),
            servers,
            skills,
            opened_at: before.map_or_else(now, |before| before.opened_at),
            host_events,
            feeds: TaskTracker::new(),
            no_more_calls: CancellationToken::new(),
            cancelled: Mutex::new((TurnNumber(0), HashSet::new())),
            choice: choice.clone(),
            settings,
            version: Arc::clone(&server.options().version),
            default_answer: server.options().default_answer.clone(),
        });
        if let Some(generation) = generation {
            hosted.forward(generation);
        }
        Ok(hosted)
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// Returns the name of the session's model; `None` if neither the configuration nor a client has chosen a model.
    pub(crate) fn model_name(&self) -> Option<&Arc<str>> {
        self.choice.model_name.as_ref()
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
        SessionChoice {
            declared: Some(self.tools.declared()),
            ..self.choice.clone()
        }
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

    /// Reads the state of a session that may not be open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn stored_state(server: &CopilotServer, id: &SessionId) -> WorkspaceState {
        session_state(server.system(), id).await
    }

    /// Adds a client of this session again, after the session was opened with other settings.
    pub(crate) fn attach_again(
        self: &Arc<Self>,
        attached: &AttachedClient,
        choice: &SessionChoice,
    ) {
        let choice = SessionChoice {
            client_options: attached.client_options,
            streaming: attached.streaming,
            commands: attached.commands.clone(),
            not_offered: Vec::new(),
            ..choice.clone()
        };
        self.attach(&attached.client, &choice, None);
    }

    /// Returns the first setting whose requested value differs from the value of the session.
    pub(crate) fn difference(&self, choice: &SessionChoice) -> Option<&'static str> {
        let mut requested = choice.requested.clone();
        if choice.model_name == self.choice.model_name {
            // Another name for the same model, such as a name that the server replaces by the configured model.
            requested.model = None;
        }
        self.settings.difference(&requested)
    }

    /// Forwards the requests for the clients' tools to all clients, until the tools are closed or the session is
    /// closed.
    fn forward(self: &Arc<Self>, mut generation: ToolGeneration) {
        let (tools, events) = (Arc::clone(&self.tools), self.host_events.clone());
        let no_more_calls = self.no_more_calls.clone();
        let spec = WorkSpec::new(ItemKind::Future, "requests of client tools");
        let spawned = self.scope.spawn(spec, move |cx| async move {
            tokio::select! {
                biased;
                _stopped = cx.stopped_at("requests of client tools") => {}
                // This branch precedes the branch of `no_more_calls`. Therefore handlers are still notified of the
                // calls that the end of the session has cancelled.
                () = async {
                    while let Some(event) = generation.next(&tools).await {
                        let event = match event {
                            GenerationEvent::Requested(call) => HostEvent::ExternalRequested(call),
                            GenerationEvent::Cancelled(request_id) => {
                                HostEvent::ExternalCompleted {
                                    request_id,
                                    is_cancelled: true,
                                }
                            }
                        };
                        // If no client is attached, the request waits for a client that attaches later.
                        drop(events.send(event));
                    }
                } => {}
                () = no_more_calls.cancelled() => {}
            }
        });
        drop(spawned);
    }

    /// Declares the tools of a client that resumes the session.
    pub(crate) fn declare(self: &Arc<Self>, declared: Vec<DeclaredTool>) {
        if let Some(generation) = self.tools.declare(declared) {
            self.forward(generation);
        }
    }

    /// Adds a client. The client receives the events from this record on, or only new events if `from` is `None`.
    pub(crate) fn attach(
        self: &Arc<Self>,
        client: &Arc<Client>,
        choice: &SessionChoice,
        from: Option<Version>,
    ) {
        let (is_first, had_forms) = (self.is_alone(), self.has_forms());
        if self
            .attached_clients
            .change(client.id, choice.client_options)
        {
            self.report_forms(had_forms);
            // The client already has a feed. A second feed would report the running calls again, with less information.
            self.update_form_client();
            return;
        }
        let handle = FeedHandle::default();
        let mut feed = Feed {
            translator: EventTranslator::new(TranslatorOptions {
                session: self.id().clone(),
                streaming: choice.streaming,
                version: Arc::clone(&self.version),
                facts: Arc::clone(&self.facts),
                context_window: choice.context_window,
                reasoning_effort: self.choice.reasoning_effort,
                model: choice
                    .model_name
                    .clone()
                    .or_else(|| self.choice.model_name.clone()),
                nonce: ulid::Ulid::generate().to_string().into(),
            }),
            host: self.host_events.subscribe(),
            events: self.session.subscribe(from),
            client: Arc::clone(client),
            handle: handle.clone(),
            session: Arc::clone(self),
            has_missed: false,
        };
        let mut first = feed.not_offered(&choice.not_offered);
        if from.is_none() {
            first.extend(feed.pending_calls());
        }
        self.attached_clients.attach(AttachedClient {
            client: Arc::clone(client),
            client_options: choice.client_options,
            streaming: choice.streaming,
            commands: choice.commands.clone(),
            feed: handle,
        });
        self.update_form_client();
        if !is_first {
            self.report_forms(had_forms);
        }
        if !choice.commands.is_null() {
            // The clients name the commands of a session to their users.
            let data = json!({ "commands": self.client_commands() });
            self.send_ephemeral("commands.changed", data);
        }
        let under_way = self.feeds.token();
        let spec = WorkSpec::new(ItemKind::Future, "events of a session");
        let spawned = self.scope.spawn(spec, |cx| async move {
            let _under_way = under_way;
            tokio::select! {
                _stopped = cx.stopped_at("events of a session") => {}
                () = feed.run_after(first) => {}
            }
        });
        drop(spawned);
    }

    /// Removes a client. Returns true if it was the last client. Open permission questions then wait for a client that
    /// resumes the session.
    pub(crate) fn detach(&self, client: ClientId) -> bool {
        let had_forms = self.has_forms();
        let result = self.attached_clients.detach(client);
        self.report_forms(had_forms);
        self.update_form_client();
        match result {
            DetachedClient::Last => true,
            DetachedClient::OneOfMany if !self.attached_clients.has_permission_handler() => {
                for question in self.session.questions() {
                    self.answer_unasked(&question);
                }
                false
            }
            DetachedClient::OneOfMany | DetachedClient::Unknown => false,
        }
    }

    /// Answers a permission question that no handler of an attached client answers. Without a default answer, the question
    /// stays open: the program answers it with `session.permissions.handlePendingPermissionRequest`.
    fn answer_unasked(&self, question: &OpenQuestion) {
        let default_answer = self.default_answer.clone();
        if default_answer == PermissionAnswer::Unanswered {
            return;
        }
        let answer = question.question.restrict_advance_answer(default_answer);
        let _first_or_not = self.session.answer(&question.id, answer);
    }

    /// True if no other client is attached to the session.
    pub(crate) fn is_last(&self, client: ClientId) -> bool {
        self.attached_clients.is_last(client)
    }

    /// True if no client is attached to the session.
    pub(crate) fn is_alone(&self) -> bool {
        self.attached_clients.is_empty()
    }

    /// True if any client fills in forms.
    pub(crate) fn has_forms(&self) -> bool {
        self.attached_clients.has_forms()
    }

    /// Notifies the clients if the session gains or loses its last client that fills in forms.
    fn report_forms(&self, had_forms: bool) {
        let is_offered = self.has_forms();
        if is_offered != had_forms {
            let data = json!({ "ui": { "elicitation": is_offered } });
            self.send_ephemeral("capabilities.changed", data);
        }
    }

    /// Subscribes to the events that are not among the events of the session itself.
    pub(crate) fn host_events(&self) -> broadcast::Receiver<HostEvent> {
        self.host_events.subscribe()
    }

    pub(crate) fn feed_of(&self, client: ClientId) -> Option<FeedHandle> {
        self.attached_clients.feed_of(client)
    }

    pub(crate) fn send_host_event(&self, event: HostEvent) {
        // If no client is attached, the event is not needed.
        drop(self.host_events.send(event));
    }

    pub(crate) fn approves_all(&self) -> bool {
        self.facts.approves_all()
    }

    /// Allows all calls without a permission question, or goes back to the questions. Answers the open
    /// questions. Returns the former value.
    pub(crate) fn set_approves_all(&self, approves_all: bool) -> bool {
        let before = self.facts.set_approves_all(approves_all);
        if approves_all {
            for question in self.session.questions() {
                self.approve(&question);
            }
        }
        before
    }

    fn approve(&self, question: &OpenQuestion) {
        let answer = question
            .question
            .restrict_advance_answer(PermissionAnswer::AllowOnce);
        let _first_or_not = self.session.answer(&question.id, answer);
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
        let note = self.facts.add_note(self.session.last_turn(), kind, data);
        let event = PersistedEvent::note(&note).at(self.id(), now(), None);
        self.send_host_event(HostEvent::Noted(note));
        event.id
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

    /// Closes the session after a time without clients. Until then, the running turn waits for a client that resumes
    /// the session.
    pub(crate) fn begin_unattended(self: &Arc<Self>, server: &CopilotServer) {
        let (own, server) = (Arc::clone(self), server.clone());
        let mut arrivals = self.attached_clients.arrivals();
        arrivals.mark_unchanged();
        let max = server.options().unattended_max;
        let spec = WorkSpec::new(ItemKind::Future, "session without a client");
        let connections = server.connections().clone();
        let spawned = connections.spawn(spec, move |cx| async move {
            tokio::select! {
                _stopped = cx.stopped_at("session without a client") => return,
                arrived = timeout(max, arrivals.changed()) => if arrived.is_ok() {
                    return;
                },
            }
            let cause = Cause::new(CauseKind::Disconnect).detail("its client is gone");
            drop(server.close_session_if(own.id(), Self::is_alone, cause));
        });
        drop(spawned);
    }

    /// Stops all work of the session, waits until its clients have received the last events, and closes the session.
    pub(crate) async fn close(&self, cause: Cause) -> Arc<Receipt> {
        let stopping = self.session.stop(&StopTarget::Session, cause.clone());
        let receipt = stopping.receipt().await;
        self.session.close().await;
        if let Some(servers) = &self.servers {
            servers.close().await;
        }
        self.no_more_calls.cancel();
        // The feeds end after they have sent the last events.
        self.feeds.close();
        let _sent_or_late = timeout(LAST_EVENTS_MAX, self.feeds.wait()).await;
        let request = StopRequest::new(Extent::Subtree, cause).grace(Duration::ZERO);
        drop(self.scope.stop(request).receipt().await);
        self.scope.close();
        receipt
    }

    /// Creates a message id in the format of the protocol.
    pub(crate) fn new_message_id() -> MessageId {
        MessageId::new(uuid::Uuid::from_u128(ulid::Ulid::generate().0).to_string())
    }
}
