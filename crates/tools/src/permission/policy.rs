//! The permission policy: rules, and the decision for tool calls without a matching rule.

use std::path::Path;
use std::sync::Arc;

use allstop_core::Effect;
use serde_json::Value;

use super::command::{ParsedCommand, PrefixMatch};
use super::grant::SessionGrant;
use super::mode::PermissionMode;
use super::prompter::{Doubt, PermissionQuestion};
use super::question_text::{compact_arguments, escaped_line};
use super::rule::{PermissionRule, RuleError};
use crate::names;
use crate::tool::{ToolInvocation, ToolSpec};

/// Tools without a direct effect. `background` affects only work that the session started, and `agent` starts an agent
/// whose calls need their own permission.
const ALLOWED_BY_DEFAULT: [&str; 2] = [names::BACKGROUND, names::AGENT];
/// Tools that change only files in the working directory.
const EDITS: [&str; 2] = [names::EDIT, names::WRITE];

/// Decision of the policy on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionDecision {
    /// Run the call.
    Allow,
    /// Deny the call; the model gets the reason, and the turn continues.
    Deny {
        /// Reason, for the model and for the list of denials.
        reason: String,
    },
    /// Ask a person, through a [`super::Prompter`].
    Ask(Box<PermissionQuestion>),
}

/// Rules that determine which calls run, which calls never run, and which calls need the answer of a person.
///
/// `deny` wins over `ask`, and `ask` over `allow`. Without a matching rule, read-only calls, commands that only read, and
/// calls of `background` and `agent` run. All other calls need the answer of a person; the calls that a started agent makes are
/// decided separately. The file tools themselves refuse paths outside the working directory. A [`PermissionMode`]
/// changes the decision for calls without a matching rule.
///
/// A `shell` rule with a prefix allows a command only if each of its simple commands is allowed. If a denying rule may
/// cover the command, a person is asked, even if a rule allows the command ([`PermissionQuestion::doubt`]). Without a
/// person the command does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermissionPolicy {
    /// Calls that run without a question.
    pub allow: Vec<PermissionRule>,
    /// Calls that need the answer of a person first, even if `allow` names them.
    pub ask: Vec<PermissionRule>,
    /// Calls that never run.
    pub deny: Vec<PermissionRule>,
}

impl PermissionPolicy {
    /// Parses rules in the syntax of the configuration.
    ///
    /// # Errors
    /// Returns the first invalid rule.
    pub fn parse<S: AsRef<str>>(allow: &[S], ask: &[S], deny: &[S]) -> Result<Self, RuleError> {
        let rules = |rules: &[S]| -> Result<Vec<PermissionRule>, RuleError> {
            rules.iter().map(|rule| rule.as_ref().parse()).collect()
        };
        Ok(Self {
            allow: rules(allow)?,
            ask: rules(ask)?,
            deny: rules(deny)?,
        })
    }

    /// Decides on a call with validated arguments, in an unknown working directory.
    pub fn decide(
        &self,
        spec: &ToolSpec,
        invocation: &ToolInvocation,
        mode: PermissionMode,
    ) -> PermissionDecision {
        self.decide_in(None, spec, invocation, mode)
    }

    /// Decides on a call with validated arguments. `folder` is the working directory of commands.
    pub(super) fn decide_in(
        &self,
        folder: Option<&Path>,
        spec: &ToolSpec,
        invocation: &ToolInvocation,
        mode: PermissionMode,
    ) -> PermissionDecision {
        let call = PolicyCall::of(spec, invocation);
        let mut doubts = Vec::new();
        for rule in &self.deny {
            match call.matches_rule(rule) {
                PrefixMatch::Yes => {
                    return PermissionDecision::Deny {
                        reason: format!("denied by the permission rule `{rule}`"),
                    };
                }
                PrefixMatch::Uncertain => doubts.push(rule),
                PrefixMatch::No => {}
            }
        }
        let harmless = spec.effect == Effect::ReadOnly
            || ALLOWED_BY_DEFAULT.contains(&call.tool)
            || call
                .command
                .as_ref()
                .is_some_and(|command| command.only_reads(&|| has_own_repository(folder)));
        let ends_work = call.tool == names::BACKGROUND
            && invocation.arguments.get("action").and_then(Value::as_str) == Some("stop");
        if mode == PermissionMode::Plan && (!harmless || ends_work) {
            return PermissionDecision::Deny {
                reason: "the mode is `plan`, in which only calls that read run: say what you would do, and wait until the user changes the mode".to_owned(),
            };
        }
        // A command that runs other programs may do what each denying rule denies. The question shows one of these
        // rules, if possible a rule whose first word occurs in the command.
        let text = shell_command(&invocation.arguments).unwrap_or_default();
        let is_named =
            |rule: &&&PermissionRule| rule.prefix.first().is_some_and(|word| text.contains(word));
        let doubt = doubts.iter().find(is_named).or(doubts.first()).copied();
        let asks = self
            .ask
            .iter()
            .any(|rule| call.matches_rule(rule) != PrefixMatch::No);
        let accepted = mode == PermissionMode::AcceptEdits && EDITS.contains(&call.tool);
        let allowed = || harmless || accepted || self.allows(&call);
        if doubt.is_none() && !asks && allowed() {
            PermissionDecision::Allow
        } else {
            PermissionDecision::Ask(Box::new(
                call.question(invocation, doubt.cloned().map(Doubt::Rule)),
            ))
        }
    }

    fn allows(&self, call: &PolicyCall<'_>) -> bool {
        let rules = || self.allow.iter().filter(|rule| rule.covers_tool(call.tool));
        rules().any(|rule| rule.prefix.is_empty())
            || call.command.as_ref().is_some_and(|command| {
                command.all_start_with(&rules().map(|rule| rule.prefix.as_slice()))
            })
    }
}

impl PermissionQuestion {
    /// Question about a call that repeats a call of an earlier turn, which may have had its effect. `before` describes
    /// the earlier call, and `doubt` is the doubt of the policy, if there is one.
    pub fn of_repetition(
        spec: &ToolSpec,
        invocation: &ToolInvocation,
        before: Arc<str>,
        doubt: Option<Doubt>,
    ) -> Self {
        let rule = match doubt {
            Some(Doubt::Rule(rule)) => Some(rule),
            _ => None,
        };
        let doubt = Doubt::Repetition { before, rule };
        PolicyCall::of(spec, invocation).question(invocation, Some(doubt))
    }
}

/// True if git finds its repository in the folder `.git` of this folder. The file tools cannot write there. Git takes any
/// other folder with certain files for a repository, and a model could write these files, with the name of a program that
/// git then runs.
fn has_own_repository(folder: Option<&Path>) -> bool {
    let found = folder.map(|folder| folder.join(".git").symlink_metadata());
    found.is_some_and(|found| found.is_ok_and(|found| found.is_dir()))
}

/// A call in the form to which rules are compared.
struct PolicyCall<'a> {
    tool: &'a str,
    command: Option<ParsedCommand>,
}

impl<'a> PolicyCall<'a> {
    fn of(spec: &'a ToolSpec, invocation: &ToolInvocation) -> Self {
        // Arguments without a command do not match the schema. The command then counts as unknown.
        let tool = spec.name_in_rules();
        let command = (&**tool == names::SHELL).then(|| {
            shell_command(&invocation.arguments).map_or(ParsedCommand::Opaque, ParsedCommand::parse)
        });
        Self { tool, command }
    }

    fn matches_rule(&self, rule: &PermissionRule) -> PrefixMatch {
        match &self.command {
            _ if !rule.covers_tool(self.tool) => PrefixMatch::No,
            Some(command) if !rule.prefix.is_empty() => command.any_starts_with(&rule.prefix),
            _ => PrefixMatch::Yes,
        }
    }

    fn question(&self, invocation: &ToolInvocation, doubt: Option<Doubt>) -> PermissionQuestion {
        let tool: Arc<str> = self.tool.into();
        let in_background = invocation
            .arguments
            .get("background")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let background = if in_background {
            " in the background"
        } else {
            ""
        };
        // The text names the doubt before the command, because the command may be long.
        let doubted = match &doubt {
            None => String::new(),
            Some(Doubt::Rule(rule)) => doubted_rule(rule),
            Some(Doubt::Repetition { rule, .. }) => format!(
                " again (it was started in an earlier turn, and may have had its effect){}",
                rule.as_ref().map(doubted_rule).unwrap_or_default()
            ),
        };
        let name = escaped_line(&tool);
        let (subject, rest, session_scope, grant) = match shell_command(&invocation.arguments) {
            // The grant for the session covers only this exact command, because a prefix would allow commands that the
            // person has not considered.
            Some(command) if self.command.is_some() => (
                format!("{name}{background}{doubted}"),
                format!(": {}", escaped_line(command)),
                format!("exactly this command{background}"),
                SessionGrant::Command {
                    command: command.into(),
                    in_background,
                },
            ),
            _ => (
                // The path comes first in the text, so that it is visible even if the content is long.
                match invocation.arguments.get("path").and_then(Value::as_str) {
                    Some(path) => format!("{name} {}{doubted}", escaped_line(path)),
                    None => format!("{name}{doubted}"),
                },
                compact_arguments(&invocation.arguments),
                format!("every call of {name}, with any arguments"),
                SessionGrant::Tool(Arc::clone(&tool)),
            ),
        };
        PermissionQuestion {
            session_id: invocation.session_id.clone(),
            call_id: invocation.call_id.clone(),
            tool,
            arguments: Arc::clone(&invocation.arguments),
            text: format!("{subject}{rest}"),
            subject,
            preview: None,
            session_scope,
            doubt,
            grant,
        }
    }
}

fn doubted_rule(rule: &PermissionRule) -> String {
    let rule = escaped_line(&rule.to_string());
    format!(" (may do what the rule {rule} denies)")
}

fn shell_command(arguments: &Value) -> Option<&str> {
    arguments.get("command").and_then(Value::as_str)
}
