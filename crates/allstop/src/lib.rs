//! AI agents that you can stop at any moment. Every stop returns a [`Receipt`]: the work that ended, the work that did not,
//! and the evidence.
//!
//! An agent with a tool, a session and a stop. The model is a function, so the program needs no key and no network:
//!
//! ```
#![doc = include_str!("../examples/hello.rs")]
//! ```
//!
//! # Parts
//! - [`Agent::new`] begins an agent with a model. [`model::from_env`] finds a model and its key,
//!   [`model::from_fn`] turns a function into a model.
//! - [`tool`](allstop_tools::tool()) and [`blocking_tool`] turn functions into tools. Their [`ToolCx`] observes the stop.
//!   [`hook`](allstop_agent::hook()) and [`guardrail`](allstop_agent::guardrail()) do so for hooks and guardrails.
//! - [`Agent::ask`] returns an [`Answer`]. [`Agent::run`] returns a [`Run`] with events and stops, and an [`Outcome`]: the
//!   answer, the receipt of the stop, or the failure. Dropping the run stops it.
//! - [`Agent::ask_as`] returns the answer as a value of a type. [`AgentBuilder::request`] sets sampling, reasoning and the
//!   choice of tools ([`RequestSettings`]).
//! - [`AgentSessions::session`] begins a conversation: its [`Session`] takes messages while a turn runs, stops a turn or one
//!   call, and lists background work.
//! - [`scope`] contains and stops any other work, and [`process`] trees of processes. Both work alone.
//!
//! # Runtimes
//! The loop of an agent, its stops and its deadlines run on a thread of the agent. Tools run on the current tokio runtime if
//! it has several threads, and otherwise on a second thread of the agent. So a tool that blocks its thread delays no stop,
//! and an agent works in a program with any runtime. [`AgentBuilder::scope`] chooses other runtimes.
//!
//! # Features
//! | feature | contents |
//! | --- | --- |
//! | `providers` (default) | models of OpenAI, Anthropic, Google and others |
//! | `validation` (default) | a check of each call's arguments against the schema of its tool |
//! | `sqlite` | sessions in a file |
//! | `mcp` | tools of MCP servers |
//! | `shell` | the tools `shell`, `background`, `read`, `write`, `edit`, `list` |
//! | `search` | the tools `glob` and `grep`; includes `shell` |
//! | `tasks` | durable tasks |
//! | `nats` | stores and workers on NATS JetStream; includes `tasks` |
//! | `a2a` | the protocol A2A 1.0; includes `tasks` |
//! | `copilot` | the server for the GitHub Copilot SDKs |
//! | `otel` | traces over OTLP |

#![warn(missing_docs)]

#[cfg(doctest)]
mod book;
#[cfg(feature = "shell")]
mod local_tools;
pub mod prelude;

pub use prelude::*;

#[cfg(feature = "a2a")]
pub use allstop_a2a as a2a;
pub use allstop_agent as agent;
#[cfg(feature = "copilot")]
pub use allstop_copilot as copilot;
pub use allstop_core as core;
pub use allstop_log as log;
#[cfg(feature = "nats")]
pub use allstop_nats as nats;
#[cfg(feature = "otel")]
pub use allstop_otel as otel;
pub use allstop_process as process;
pub use allstop_scope as scope;
pub use allstop_session as session;
#[cfg(feature = "tasks")]
pub use allstop_task as task;
pub use allstop_tools as tools;
#[cfg(feature = "shell")]
pub use local_tools::local_tools;
