//! The agent loop: model, tools, deadlines and a stop at any point.
//!
//! An [`Agent`] is a configuration: a model, tools, settings, hooks, guardrails. [`Agent::run`] sends one prompt, and the
//! [`Run`] returns an [`Outcome`]: the answer, the receipt of a stop, or the failure. Dropping the [`Run`], or the future
//! that awaits it, stops the run with the cause `disconnect`.
//!
//! ```
//! use allstop_agent::{Agent, Outcome};
//! use allstop_core::CauseKind;
//! use allstop_model::{Pause, Reply, ScriptedModel};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::in_order_of_calls(vec!["Hello!".into(), Reply::text("…").pause(Pause::Forever)]);
//! let agent = Agent::new(model).build();
//! assert_eq!(agent.ask("Hi").await?.to_string(), "Hello!");
//!
//! let run = agent.run("Tell me a long story");
//! let receipt = run.stop(CauseKind::User).await;
//! assert!(receipt.quiet());
//! assert!(matches!(run.await, Outcome::Stopped(_)));
//! # Ok(())
//! # }
//! ```
//!
//! [`Agent::start`] is the general form: it runs several prompts as consecutive turns, below a scope of the caller, with a
//! history in a log. Dropping a future that waits with [`Run::wait`] stops nothing.
//!
//! A turn is a [`Draft`](allstop_core::turn::Draft) over an immutable conversation. When the turn ends, for any reason,
//! its records go to the [`RunHistory`] in one append. Only a commit changes the conversation, or a stop under the
//! policy `keep`, which keeps the completed steps.
//!
//! Modules: `run` runs turns one after another. `turn` runs one turn, in `steps` (the loop), `model_call`, `calls`
//! (admission, then the calls of a step in parallel) and `ending` (commit or stop). `user_code` runs code of the
//! embedding program: hooks, guardrails and permission questions. Every stop covers this code, even if the code ignores
//! the stop. `subagent` is the tool with which an agent starts sub-agents.

mod activity;
mod agent;
mod answer;
mod answer_schema;
mod background;
mod controls;
mod ending_turn;
mod error;
mod event;
mod guardrail;
mod history;
mod home_scope;
mod hook;
mod hook_calls;
mod nested_calls;
mod notes;
mod oldest_turns;
mod outcome;
mod output_batch;
mod parts;
mod plain_answer;
mod prompt;
mod request_view;
mod run;
mod run_events;
mod settings;
mod span_links;
mod span_texts;
mod spans;
mod subagent;
mod summary;
mod toolbox;
mod turn;
mod user_code;

pub use agent::{Agent, AgentBuilder};
pub use answer::{Answer, Outcome, OutcomeParts, RunError, RunFailure};
pub use answer_schema::{AnswerSchema, InvalidSchema};
pub use background::{OrphanItems, SessionBackground};
pub use controls::{RunControls, SteeredMessage};
pub use ending_turn::{InterruptReason, UnwrittenEnding};
pub use error::{TurnError, TurnErrorKind};
pub use event::{AgentEvent, EventSink, UnfinishedCall};
pub use guardrail::{FnGuardrail, Guardrail, GuardrailStage, GuardrailVerdict, guardrail};
pub use history::RunHistory;
pub use hook::{FnHook, Hook, HookCx, HookEvent, HookVerdict, PROLONGATIONS_MAX, hook};
pub use oldest_turns::{TurnsSummary, newest_turns_within, oldest_turns, tokens_of};
pub use outcome::{RunOutcome, TurnOutcome};
pub use plain_answer::{PlainAnswerError, answer_plainly};
pub use prompt::Prompt;
pub use run::{ENDING_MAX, Run, RunRequest, RunStop, RunStopper};
pub use run_events::RunEvents;
pub use settings::{ContextLimits, Deadlines, RepeatUnknown, Settings};
pub use span_links::SpanLinks;
pub use subagent::{
    DEPTH_MAX_DEFAULT, RUNNING_MAX_DEFAULT, STEPS_MAX_DEFAULT, SubAgentBackground, SubAgentKind,
    SubAgentLimits, SubAgentToolForm, SubAgents,
};
pub use summary::{SummaryError, summarise};
