//! The policy: rules, and what holds where no rule speaks.

use std::sync::Arc;

use allstop_core::Effect;
use allstop_core::terminal_text::{escape, is_unsafe_in_question};
use serde_json::Value;

use super::command::{Command, Match};
use super::prompter::Question;
use super::rule::{Rule, RuleError, SHELL};
use super::session::Grant;
use crate::tool::{ToolInvocation, ToolSpec};

/// The longest question text, in characters: a screenful, beyond which nobody reads before saying yes.
const QUESTION_CHARS_MAX: usize = 2_000;

/// Tools that do nothing by themselves but reach what the session itself has started, or start an agent whose calls are
/// decided about one by one.
const UNASKED: [&str; 2] = [crate::background::NAME, "agent"];

/// What the policy says about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Run it.
    Allow,
    /// Do not run it; the model is told why, and the turn goes on.
    Deny {
        /// Why, for the model and for the list of denials.
        reason: String,
    },
    /// Ask a person, through a [`super::Prompter`].
    Ask(Box<Question>),
}

/// Which calls run, which do not, and which a person is asked about.
///
/// A rule that denies wins over one that asks, and that over one that allows. Where no rule speaks, a call whose
/// effect is read-only runs, so does one of `background` or of `agent`, whose own calls are asked about one by one, and
/// any other is asked about. The file tools refuse by themselves what is outside the working directory.
///
/// For the shell, a rule with a prefix allows a command only if each simple command in it is allowed. Where a denying
/// rule may be meant and it cannot be told, a person is asked, whatever allows the command ([`Question::doubt`]); where
/// nobody is asked it does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionPolicy {
    /// Calls that run.
    pub allow: Vec<Rule>,
    /// Calls that are asked about, whatever allows them.
    pub ask: Vec<Rule>,
    /// Calls that never run.
    pub deny: Vec<Rule>,
}

impl PermissionPolicy {
    /// Reads rules as they are written in configuration.
    ///
    /// # Errors
    /// The first rule that cannot be read.
    pub fn parse<S: AsRef<str>>(allow: &[S], ask: &[S], deny: &[S]) -> Result<Self, RuleError> {
        let rules = |rules: &[S]| -> Result<Vec<Rule>, RuleError> {
            rules.iter().map(|rule| rule.as_ref().parse()).collect()
        };
        Ok(Self {
            allow: rules(allow)?,
            ask: rules(ask)?,
            deny: rules(deny)?,
        })
    }

    /// Decides about a call whose arguments were checked.
    pub fn decide(&self, spec: &ToolSpec, invocation: &ToolInvocation) -> Decision {
        let call = Call::of(spec, invocation);
        let mut doubt = None;
        for rule in &self.deny {
            match call.is_meant_by(rule) {
                Match::Yes => {
                    return Decision::Deny {
                        reason: format!("denied by the permission rule `{rule}`"),
                    };
                }
                Match::Perhaps => doubt = doubt.or(Some(rule)),
                Match::No => {}
            }
        }
        let is_to_ask = self
            .ask
            .iter()
            .any(|rule| call.is_meant_by(rule) != Match::No);
        let harmless = spec.effect == Effect::ReadOnly || UNASKED.contains(&&*spec.name);
        let allowed = || harmless || self.allows(&call);
        if doubt.is_none() && !is_to_ask && allowed() {
            Decision::Allow
        } else {
            Decision::Ask(Box::new(call.question(invocation, doubt)))
        }
    }

    fn allows(&self, call: &Call<'_>) -> bool {
        let rules = || self.allow.iter().filter(|rule| rule.is_about(call.tool));
        rules().any(|rule| rule.prefix.is_empty())
            || call.command.as_ref().is_some_and(|command| {
                command.all_start_with(&rules().map(|rule| rule.prefix.as_slice()))
            })
    }
}

/// A call, as rules see it.
struct Call<'a> {
    tool: &'a str,
    /// The shell's command.
    command: Option<Command>,
}

impl<'a> Call<'a> {
    fn of(spec: &'a ToolSpec, invocation: &ToolInvocation) -> Self {
        // Arguments without a command did not pass the schema: nothing is known of them.
        let command = (&*spec.name == SHELL)
            .then(|| shell_command(&invocation.arguments).map_or(Command::Opaque, Command::parse));
        Self {
            tool: &spec.name,
            command,
        }
    }

    fn is_meant_by(&self, rule: &Rule) -> Match {
        match &self.command {
            _ if !rule.is_about(self.tool) => Match::No,
            Some(command) if !rule.prefix.is_empty() => command.any_starts_with(&rule.prefix),
            _ => Match::Yes,
        }
    }

    fn question(&self, invocation: &ToolInvocation, doubt: Option<&Rule>) -> Question {
        let tool: Arc<str> = self.tool.into();
        let in_background = invocation
            .arguments
            .get("background")
            .and_then(Value::as_bool);
        let background = if in_background == Some(true) {
            " in the background"
        } else {
            ""
        };
        // Before the command, which may be long.
        let doubted = doubt.map_or_else(String::new, |rule| {
            let rule = for_people(&rule.to_string());
            format!(" (may do what the rule {rule} denies)")
        });
        let text = invocation.arguments.to_string();
        let name = for_people(&tool);
        let (text, session_scope, grant) = match shell_command(&invocation.arguments) {
            // Only this very command: a prefix that a person did not write is a prefix that nobody thought about.
            Some(command) if self.command.is_some() => (
                format!("{name}{background}{doubted}: {}", for_people(command)),
                "this very command".to_owned(),
                Grant::Command(command.into()),
            ),
            _ => (
                // The path first: a long content must not push it out of sight.
                match invocation.arguments.get("path").and_then(Value::as_str) {
                    Some(path) => format!("{name} {}: {}", for_people(path), for_people(&text)),
                    None => format!("{name} {}", for_people(&text)),
                },
                format!("every call of {name}"),
                Grant::Tool(Arc::clone(&tool)),
            ),
        };
        Question {
            session_id: invocation.session_id.clone(),
            call_id: invocation.call_id.clone(),
            tool,
            text,
            session_scope,
            doubt: doubt.cloned(),
            grant,
        }
    }
}

fn shell_command(arguments: &Value) -> Option<&str> {
    arguments.get("command").and_then(Value::as_str)
}

/// One line in which nothing is invisible or changes how the rest looks, and bounded.
fn for_people(text: &str) -> String {
    let cut = text.char_indices().nth(QUESTION_CHARS_MAX);
    let (shown, rest) = text.split_at(cut.map_or(text.len(), |(at, _)| at));
    let line = escape(shown, is_unsafe_in_question).into_owned();
    match rest.chars().count() {
        0 => line,
        rest => format!("{line} … and {rest} more characters"),
    }
}
