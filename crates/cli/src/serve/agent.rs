//! The served agent: the built-in agent `echo`, or the agent of the configuration.

use std::num::NonZero;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_runtime::{
    AgentExecutorOptions, ContextConversations, QuestionRecipient, SessionSetup, StoreChoice,
    System, SystemOptions, SystemStore, open_store,
};
use allstop_scope::{GRACE_DEFAULT, RootOptions, Scope};
use allstop_session::SessionRegistry;
use allstop_task::TaskParts;
use allstop_tools::mcp::McpState;
use allstop_tools::permission::{FixedAnswer, PermissionAnswer};

use super::cluster;
use super::echo::EchoAgent;
use crate::args::{ExecutionArgs, StoreArgs, TaskAgent};
use crate::descriptors;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::start::options::{HostOptions, config_with_model, note_unusable_servers, system};
use crate::start::{definitions, project};
use allstop_remote::{ClientQuestions, OwnedSessions};

/// Selected agent and the store of its tasks, before anything is opened.
pub(super) enum AgentChoice {
    /// No agent: this process is a front end of a cluster. It accepts tasks, which run on workers.
    None {
        store: StoreChoice,
        scopes: RootOptions,
    },
    Echo {
        store: StoreChoice,
        scopes: RootOptions,
    },
    Model {
        system: Box<SystemOptions>,
        asks: QuestionRecipient,
        /// Maximum wait of a task for its background work; `None` selects the default.
        background_max: Option<Duration>,
    },
}

/// An agent that can execute tasks.
pub(super) struct OpenAgent {
    /// Name of the agent, for its clients.
    pub(super) name: &'static str,
    /// Description of the agent in one sentence, for its clients.
    pub(super) description: String,
    pub(super) parts: TaskParts,
    pub(super) store: SystemStore,
    /// Sessions, tools and MCP servers of the agent, if it has any.
    pub(super) system: Option<System>,
    /// Conversations of the contexts in the store, also those of an earlier agent.
    pub(super) conversations: ContextConversations,
}

impl AgentChoice {
    /// Reads the flags and the configuration. The agents' file tools cannot reach the `secret_files`. May block the thread, because it reads files.
    pub(super) fn read(
        args: &ExecutionArgs,
        concurrency: usize,
        given: HostOptions,
        secret_files: Vec<PathBuf>,
    ) -> Result<Self, CliError> {
        let cluster = cluster::store(args)?;
        if let Some(store) = cluster.clone().filter(|_| concurrency == 0) {
            let scopes = given.scopes;
            return Ok(Self::None { store, scopes });
        }
        let store_or = |configured| match cluster.or_else(|| in_memory(&args.store)) {
            Some(store) => Ok(store),
            None => ProcessHost::store(&args.store, configured),
        };
        match args.agent {
            TaskAgent::Echo => {
                let mut scopes = given.scopes;
                scopes.grace = args.grace.or_default();
                let store = store_or(None)?;
                Ok(Self::Echo { store, scopes })
            }
            TaskAgent::Model => {
                let project = project::trusted(&args.model, &given.folder, &given.reporter)?;
                let mut config = config_with_model(&args.model, "serve", &given, &project)?;
                let definitions = definitions::load(&project.definitions, &given.reporter);
                args.permissions.set_mode(&mut config);
                config.deadlines.grace = args.grace.time.or(config.deadlines.grace);
                let limits = &mut config.limits;
                limits.max_steps = args.max_steps.map_or(limits.max_steps, NonZero::get);
                let store = store_or(config.store.path.clone())?;
                let answer = args.permissions.answer();
                let asks = match answer {
                    Some(_) => QuestionRecipient::Prompter,
                    // The task passes permission questions to its client.
                    None => QuestionRecipient::Subscribers,
                };
                let prompter = FixedAnswer(answer.unwrap_or(PermissionAnswer::Unanswered));
                let record = args.model.record.clone();
                note_unusable_servers(&config, &given.reporter);
                let mut system = system(store, record, given, config, Arc::new(prompter));
                system.definitions = definitions;
                system.reserved.extend(secret_files);
                Ok(Self::Model {
                    system: Box::new(system),
                    asks,
                    background_max: args.background_wait.map(Duration::from),
                })
            }
        }
    }

    /// Root scope of all work of the server.
    pub(super) fn root(&self) -> Scope {
        match self {
            Self::None { scopes, .. } | Self::Echo { scopes, .. } => {
                Scope::root("process", scopes.clone())
            }
            Self::Model { system, .. } => system.root(),
        }
    }

    /// Time that a stop waits before it uses force.
    pub(super) fn grace(&self) -> Duration {
        match self {
            Self::None { scopes, .. } | Self::Echo { scopes, .. } => scopes.grace,
            Self::Model { system, .. } => {
                let grace = system.config.deadlines.grace;
                grace.map_or(GRACE_DEFAULT, Duration::from)
            }
        }
    }

    fn store(&self) -> &StoreChoice {
        match self {
            Self::None { store, .. } | Self::Echo { store, .. } => store,
            Self::Model { system, .. } => &system.store,
        }
    }

    /// File of the store, or the URLs of its NATS servers; `None` for a store in memory.
    pub(super) fn store_name(&self) -> Option<PathBuf> {
        match self.store() {
            StoreChoice::Sqlite(path) => Some(path.clone()),
            StoreChoice::Memory => None,
            StoreChoice::Nats(options) => Some(options.addresses().into()),
        }
    }

    /// Describes the agent and the store, in a line for the operator.
    pub(super) fn describe(&self) -> String {
        let agent = match self {
            Self::None { .. } => "at workers",
            Self::Echo { .. } => "echo",
            Self::Model { system, .. } => system.config.model.name.as_deref().unwrap_or("model"),
        };
        match self.store() {
            StoreChoice::Sqlite(path) => format!("agent {agent} · store {}", path.display()),
            StoreChoice::Memory => format!("agent {agent} · store in memory"),
            StoreChoice::Nats(options) => format!("agent {agent} · store {}", options.addresses()),
        }
    }

    /// Opens the store, and starts the MCP servers in `scope`. `sessions` receives the agent's sessions, so other
    /// terminals can list and stop them.
    pub(super) async fn open(
        self,
        scope: Scope,
        store_scope: &Scope,
        sessions: &OwnedSessions,
    ) -> Result<OpenAgent, CliError> {
        let spill_folder = ProcessHost::spill_folder(self.store());
        if !matches!(self, Self::Model { .. }) {
            // There is an agent without sessions, or none: other terminals see a server without sessions.
            sessions.take_clients(&SessionRegistry::default(), ClientQuestions::ClientOnly);
        }
        let conversations = |store: &SystemStore, registry| ContextConversations {
            log: Arc::clone(store.log()),
            registry,
            spill_folder,
            scope: store_scope.clone(),
        };
        match self {
            Self::None { store, .. } => {
                let store = open_store(&store, store_scope).await?;
                let conversations = conversations(&store, SessionRegistry::default());
                Ok(OpenAgent {
                    name: "allstop",
                    description: "Tasks that the workers of a cluster run.".to_owned(),
                    // A front end ends the stopped tasks of lost workers, and names their calls.
                    parts: TaskParts::of(EchoAgent).canceler(conversations.clone()),
                    conversations,
                    store,
                    system: None,
                })
            }
            Self::Echo { store, .. } => {
                let store = open_store(&store, store_scope).await?;
                Ok(OpenAgent {
                    name: "echo",
                    description: "Answers each message with its own text.".to_owned(),
                    parts: TaskParts::of(EchoAgent),
                    conversations: conversations(&store, SessionRegistry::default()),
                    store,
                    system: None,
                })
            }
            Self::Model {
                system,
                asks,
                background_max,
            } => {
                let system = System::open_beside(scope, store_scope, *system).await?;
                sessions.take_clients(system.registry(), ClientQuestions::ClientOnly);
                system.start_servers().await?;
                warn_of_servers(&system);
                let default = AgentExecutorOptions::default();
                let options = AgentExecutorOptions::default()
                    .background_max(background_max.unwrap_or(default.background_max))
                    .sessions_open_max(descriptors::sessions_open_max(default.sessions_open_max))
                    .shares_sessions(system.store().nats().is_some());
                let setup = SessionSetup::default().recipient(asks);
                let executor = system.agent_executor(setup, options);
                Ok(OpenAgent {
                    name: "allstop",
                    description: format!(
                        "An agent with the model {}. Each context is a conversation.",
                        system.model_name()
                    ),
                    parts: executor.parts(),
                    conversations: conversations(system.store(), system.registry().clone()),
                    store: system.store().clone(),
                    system: Some(system),
                })
            }
        }
    }
}

/// The memory store, if the flag `--store` has the value `:memory:`.
fn in_memory(store: &StoreArgs) -> Option<StoreChoice> {
    let path = store.store.as_deref()?;
    (path == Path::new(":memory:")).then_some(StoreChoice::Memory)
}

fn warn_of_servers(system: &System) {
    for server in system.mcp().all() {
        if let McpState::Degraded { why, .. } = server.state() {
            tracing::warn!(server = %server.name(), why = &*why, "an MCP server is unavailable");
        }
    }
}
