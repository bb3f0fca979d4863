//! Permission to run a tool call: allow, deny, or ask a person.
//!
//! A [`PermissionPolicy`] is plain data, shared by sessions; [`Permissions`] adds the answers of a person for one
//! session. The agent loop asks the [`Prompter`] and waits for the answer or for a stop of the call's scope, so that a
//! stop also ends a permission question. A denial is not a cancellation: the model gets an error result, and the turn
//! continues.
//!
//! Permissions are not a sandbox: an allowed command can do everything that its user can do. Rules for the shell check
//! the words of a command. If these words are uncertain, a person is asked. If a denying rule may cover the command,
//! the question names that rule ([`PermissionQuestion::doubt`]), and only a person can allow the command.
//! `docs/permissions.md` lists the guarantees and the limits of rules, with examples that a test checks.

mod command;
mod denial;
mod grant;
mod mode;
mod policy;
mod prompter;
mod question_text;
mod rule;
mod session;

pub use denial::Denial;
pub use mode::{InvalidMode, ModeSwitch, PermissionMode};
pub use policy::{PermissionDecision, PermissionPolicy};
pub use prompter::{Doubt, FixedAnswer, PermissionAnswer, PermissionQuestion, Prompter};
pub use rule::{PermissionRule, RuleError};
pub use session::Permissions;
