//! Whether a call may run: allow, deny, or ask a person.
//!
//! A [`PermissionPolicy`] is plain data, shared by sessions; [`Permissions`] adds what a person has allowed for one
//! session. The loop asks the [`Prompter`] itself and races that wait against the scope, so that a stop ends a
//! question like any other work. A denial is not a cancel: the model gets an error result and the turn goes on.
//!
//! What this is not: a sandbox. A command that is allowed does what it does; rules for the shell look at the words
//! of the command and ask whenever they cannot be sure of them. A question that is there because a denying rule may be
//! meant carries that rule ([`Question::doubt`]), and only a person says yes to it. `docs/permissions.md` has what rules
//! promise and what they cannot, with examples that a test checks.

mod command;
mod policy;
mod prompter;
mod rule;
mod session;

pub use policy::{Decision, PermissionPolicy};
pub use prompter::{Answer, FixedAnswer, Prompter, Question};
pub use rule::{Rule, RuleError};
pub use session::Permissions;
