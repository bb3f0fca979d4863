//! Execution of the slash commands of a chat.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::receipt::{ItemKind, ReceiptItem};
use allstop_core::{CallId, Cause, CauseKind};
use allstop_runtime::{OrphanedWork, SessionCost};
use allstop_scope::{Scope, WorkSpec};
use allstop_session::{FollowUp, Session, StopTarget};
use allstop_tools::BackgroundWork;
use allstop_tools::files::file_names;
use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::pending::FinishedWork;
use super::{ChatLoop, KnownCall};
use crate::chat::call_outputs::{CallOutput, CallOutputState, recorded_output};
use crate::chat::command::{BackgroundCommand, ChatCommand, HELP, TypedTarget};
use crate::chat::complete::CompletionNames;
use crate::chat::next::NextChat;
use crate::chat::said::Said;
use crate::chat::server_content::{prompt_names, resource_names};
use crate::chat::state::{ChatEvent, CommandWork};
use crate::config_edit;
use crate::display::{
    describe_session_cost, found_in_chat, help_on_definitions, plain, transcript, waits_for,
};
use crate::host::ProcessHost;
use crate::offered_models::{list, offered_models};
use crate::short_id::short;

/// Maximum wait for the names at MCP servers. A person who presses Tab waits for the answer.
const COMPLETION_WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum number of files that are searched for a name.
const FILES_MAX: usize = 20_000;

/// Formats the output of a call below its label. `running` lists the work of the session that has not ended.
fn describe_output(call: &CallOutput, running: &[ReceiptItem]) -> Said {
    let is_it = |item: &&ReceiptItem| *item.id == *call.id.as_str();
    let waits = running.iter().find(is_it).and_then(|item| item.waits_for);
    let state = match waits {
        Some(reason) => format!(", {}", waits_for(reason)),
        None => match call.state {
            CallOutputState::Runs => ", running".to_owned(),
            CallOutputState::Stopped => ", stopped".to_owned(),
            CallOutputState::Ended => String::new(),
        },
    };
    let text = match call.text.trim_end() {
        "" => "(no output)",
        text => text,
    };
    Said {
        own: format!("[{} ({}){state}]", call.label, call.id),
        outside: text.to_owned(),
    }
}

impl ChatLoop<'_> {
    /// Carries out a command.
    pub(super) fn command(&mut self, command: ChatCommand) {
        let session = &self.chat.session;
        let view = &self.chat.view;
        match command {
            ChatCommand::Help => {
                let from_files = help_on_definitions(self.chat.system.definitions());
                view.text(&format!("{HELP}{from_files}"));
            }
            ChatCommand::Stop(target) => match self.target(target) {
                Ok(target) => {
                    let cause = Cause::new(CauseKind::User).detail("/stop").by("cli");
                    self.stop(&target, cause);
                }
                Err(why) => view.note(&why),
            },
            ChatCommand::Preview(target) => match self.target(target) {
                Ok(target) => view.receipt(&session.preview(&target)),
                Err(why) => view.note(&why),
            },
            ChatCommand::Background(what) => self.background(what),
            ChatCommand::Output(call) => match self.outputs.find(call.as_deref()) {
                Some(call) => {
                    let running = session.preview(&StopTarget::TurnAndBackground);
                    view.said(&describe_output(call, running.items()));
                }
                None => self.print_when_ready(async move |session| match session.history().await {
                    Ok(conversation) => match recorded_output(&conversation, call.as_deref()) {
                        Some(call) => describe_output(&call, &[]),
                        None if call.is_none() => "no tool call has run yet".to_owned().into(),
                        None => format!("call `{}` not found", call.as_deref().unwrap_or_default())
                            .into(),
                    },
                    Err(error) => format!("the history cannot be read: {error}").into(),
                }),
            },
            ChatCommand::Promote(call) => match find_call(call.as_deref(), &self.own_calls()) {
                Ok(call) => view.note(&match session.promote(&call) {
                    Ok(()) => format!("{call} continues in the background"),
                    Err(error) => error.to_string(),
                }),
                Err(why) => view.note(&why),
            },
            ChatCommand::Policy(None) => view.note(&format!("policy {}", session.policy())),
            ChatCommand::Policy(Some(policy)) => {
                session.set_policy(policy);
                self.remember_policy(policy);
            }
            ChatCommand::Mode(to) => {
                if to.is_some() {
                    self.status.switch(to);
                }
                view.note(&self.status.describe_mode());
            }
            ChatCommand::Answer(typed) => {
                let said = self.forms.answer(&typed, session);
                view.note(&said.unwrap_or_else(|why| why));
            }
            ChatCommand::Refuse => {
                let said = self.forms.refuse(session);
                view.note(&said.unwrap_or_else(|why| why));
            }
            ChatCommand::Undo => {
                self.print_when_ready(async |session| match session.undo().await {
                    Ok(turn) => {
                        let mut said =
                            format!("turn {} is undone; the effects of its calls remain", turn.0);
                        let history = session.history().await;
                        let lost = history.iter().flat_map(|conversation| &conversation.lost);
                        let calls = lost.filter(|lost| lost.turn == turn);
                        for call in calls.flat_map(|lost| &lost.effects.calls) {
                            said.push_str("\n  ");
                            said.push_str(&call.to_string());
                        }
                        said
                    }
                    Err(error) => format!("cannot undo: {error}"),
                });
            }
            ChatCommand::Compact => self.compact(),
            ChatCommand::Cost => {
                let system = &self.chat.system;
                let (log, prices) = (Arc::clone(system.log()), system.prices());
                self.print_when_ready(async move |session| {
                    match SessionCost::of_session(&*log, session.id(), prices).await {
                        Ok(cost) => describe_session_cost(&cost),
                        Err(error) => format!("the log of the session cannot be read: {error}"),
                    }
                });
            }
            ChatCommand::Status => self.print_status(),
            ChatCommand::History => {
                let session = session.clone();
                let reading = async move { FinishedWork::History(session.history().await) };
                self.pending.push(reading.boxed());
            }
            other => self.chat_command(other),
        }
    }

    /// Carries out a command about the chat itself.
    fn chat_command(&mut self, command: ChatCommand) {
        match command {
            ChatCommand::Model(None) => self.print_models(),
            ChatCommand::Model(Some(name)) => {
                let base_url = self.chat.system.config().model.base_url.clone();
                self.go_on_in(NextChat::Model { name, base_url });
            }
            ChatCommand::Clear => self.go_on_in(NextChat::New),
            ChatCommand::Resume(name) => self.go_on_in(NextChat::Session(name)),
            ChatCommand::Export(file) => self.export(file),
            ChatCommand::Thinking => {
                let shows = self.chat.view.live.toggle_thinking();
                self.note(if shows {
                    "the reasoning of the model is shown from now on"
                } else {
                    "the reasoning of the model is hidden from now on"
                });
            }
            // The function `command` and the module `state` handle all other commands.
            _ => {}
        }
    }

    /// Prints the model of the chat, and the models that its server or provider offers.
    fn print_models(&self) {
        let model = self.chat.system.model_name().to_string();
        let said = format!("model {model} · /model NAME goes on with another one");
        if model.starts_with("script:") {
            return self.chat.view.note(&said);
        }
        let base_url = self.chat.system.config().model.base_url.clone();
        self.print_when_ready(async move |_| {
            match offered_models(Some(&model), base_url.as_deref()).await {
                Ok(names) => Said {
                    own: said,
                    outside: list(&names),
                },
                Err(reason) => {
                    format!("{said}\nthe list of models is not available: {reason}").into()
                }
            }
        });
    }

    /// Saves the policy in the configuration of the user, so that the next chat has it too.
    fn remember_policy(&self, policy: FollowUp) {
        let said = format!("policy {policy} from the next message on");
        let Some(file) = self.chat.config_file.clone() else {
            return self.chat.view.note(&said);
        };
        let place = ProcessHost::below_home(&file.to_string_lossy());
        let scope = Scope::root("configuration", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "saving the policy");
        let saving = scope.spawn_blocking(spec, move |_| {
            config_edit::edit(&file, |document| {
                // A missing table goes to the end of the file, below the comments of the user.
                let session = document.entry("session").or_insert_with(toml_edit::table);
                session["follow_up"] = toml_edit::value(policy.as_str());
                Ok(())
            })
        });
        self.print_when_ready(async move |_| {
            let saved = match saving {
                Ok(saving) => saving.await.map_err(|lost| lost.to_string()),
                Err(not_started) => Err(not_started.to_string()),
            };
            match saved.and_then(|saved| saved.map_err(|error| error.message)) {
                Ok(()) => format!("{said} · saved in {place}"),
                Err(why) => format!("{said} · not saved for the next chat: {why}"),
            }
        });
    }

    /// Summarises older turns. Escape and Ctrl-C stop it, like a turn. Running or waiting work prevents it: otherwise
    /// the compaction would begin later, when the user no longer expects it.
    fn compact(&mut self) {
        if self.state.is_busy() || self.chat.session.is_busy() {
            let names = self.running_turn().join(", ");
            let names = if names.is_empty() { "the turn" } else { &names };
            return self.note(&format!(
                "still running: {names} · type /compact again after its end"
            ));
        }
        self.chat
            .view
            .note("summarising older turns · Esc stops it");
        let session = self.chat.session.clone();
        let compacted = async move {
            FinishedWork::Compacted(match session.compact().await {
                Ok(done) => Said {
                    own: "the older turns are now this summary:".to_owned(),
                    outside: done.summary.to_string(),
                },
                Err(error) => format!("cannot compact: {error}").into(),
            })
        };
        self.pending.push(compacted.boxed());
        self.status.compacts(Some(Instant::now()));
        self.apply(ChatEvent::Works(CommandWork::Compacts));
    }

    /// Writes the conversation to a file.
    fn export(&self, file: Option<String>) {
        let id = self.chat.session.id();
        let file = file.unwrap_or_else(|| format!("allstop-{}.md", short(id.as_str())));
        let path = self.chat.system.folder().join(&file);
        let scope = Scope::root("export", self.chat.host.scopes());
        self.print_when_ready(async move |session| {
            let conversation = match session.history().await {
                Ok(conversation) => conversation,
                Err(error) => return format!("the history cannot be read: {error}"),
            };
            let spec = WorkSpec::new(ItemKind::Thread, "writing the conversation");
            let writing = scope.spawn_blocking(spec, move |_| {
                let text = transcript::markdown(&transcript::entries(&conversation));
                // A full disk leaves no half of a conversation.
                let folder = path.parent().unwrap_or(&path);
                let mut file = NamedTempFile::new_in(folder)?;
                file.write_all(text.as_bytes())?;
                file.persist_noclobber(&path)?;
                Ok(())
            });
            let written = match writing {
                Ok(writing) => writing.await.map_err(|lost| lost.to_string()),
                Err(not_started) => Err(not_started.to_string()),
            };
            let why = |error: io::Error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "the file exists; /export FILE names another one".to_owned()
                }
                _ => error.to_string(),
            };
            match written.and_then(|written| written.map_err(why)) {
                Ok(()) => format!("the conversation is in {file}"),
                Err(why) => format!("cannot write {file}: {why}"),
            }
        });
    }

    /// Prints the text when the future has produced it.
    pub(super) fn print_when_ready<F>(&self, text: impl FnOnce(Session) -> F)
    where
        F: Future<Output: Into<Said>> + Send + 'static,
    {
        let said = text(self.chat.session.clone()).map(|said| FinishedWork::Said {
            said: said.into(),
            was_wait: false,
        });
        self.pending.push(said.boxed());
    }

    /// Lists the files of the working folder and the resources of MCP servers, to complete the name of one.
    pub(super) fn find_files(&self) {
        let folder = self.chat.system.folder().to_owned();
        let servers = self.chat.system.mcp().all().to_vec();
        let scope = Scope::root("files", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "listing files");
        let found = scope.spawn_blocking(spec, move |cx| file_names(&folder, FILES_MAX, &cx));
        // Without files, nothing is completed.
        let found = async move {
            let files = match found {
                Ok(found) => found.await.unwrap_or_default(),
                Err(_not_started) => Vec::new(),
            };
            let resources = timeout(COMPLETION_WAIT_MAX, resource_names(&servers)).await;
            FinishedWork::Files([files, resources.unwrap_or_default()].concat())
        };
        self.pending.push(found.boxed());
    }

    /// Lists the prompts of MCP servers, to complete the command for one.
    pub(super) fn find_prompts(&self) {
        let servers = self.chat.system.mcp().all().to_vec();
        let found = async move {
            let names = timeout(COMPLETION_WAIT_MAX, prompt_names(&servers)).await;
            FinishedWork::Prompts(names.unwrap_or_default())
        };
        self.pending.push(found.boxed());
    }

    /// Names that the arguments of commands can currently refer to, for completion.
    pub(super) fn names(&self) -> CompletionNames {
        let session = &self.chat.session;
        let works = session.background().into_iter();
        let works = works.filter(|work| work.is_running());
        let left = session
            .orphaned_work()
            .into_iter()
            .filter(|left| left.alive);
        let background = left
            .map(|left| left.id)
            .chain(works.map(|work| work.id.clone()));
        let definitions = self.chat.system.definitions();
        let ids = |calls: Vec<CommandCall>| calls.iter().map(|call| call.id.to_string()).collect();
        CompletionNames {
            files: Vec::new(),
            background: background.map(|id| id.to_string()).collect(),
            calls: ids(self.own_calls()),
            nested: ids(self.nested_calls()),
            outputs: self.outputs.ids().collect(),
            commands: definitions.commands.keys().cloned().collect(),
        }
    }

    fn background(&mut self, what: BackgroundCommand) {
        let view = &self.chat.view;
        let works = self.chat.session.background();
        let left = self.chat.session.orphaned_work();
        let find = |id: &str| {
            if let Some(work) = works.iter().find(|work| work.id.as_str() == id) {
                return Ok(Arc::clone(work));
            }
            Err(match left.iter().find(|left| left.id.as_str() == id) {
                Some(left) => format!(
                    "{} · this process cannot read its output or wait for it",
                    left_line(left)
                ),
                None => format!("`{id}` not found: /background lists all background work"),
            })
        };
        match what {
            BackgroundCommand::List => self.print_when_ready(async |session| {
                let left = session.check_orphaned_work().await;
                let works = session.background();
                let works = works.iter().map(|work| line(work));
                let lines: Vec<String> = left.iter().map(left_line).chain(works).collect();
                if lines.is_empty() {
                    "nothing runs in the background".to_owned()
                } else {
                    lines.join("\n")
                }
            }),
            BackgroundCommand::Output(id) => match find(&id) {
                Ok(work) => {
                    let output = work.output();
                    view.said(&Said {
                        own: format!("[{}]", line(&work)),
                        outside: output.trim_end().to_owned(),
                    });
                }
                Err(why) => view.note(&why),
            },
            BackgroundCommand::Stop(id) => {
                let cause = Cause::new(CauseKind::User)
                    .detail("/background stop")
                    .by("cli");
                self.stop(&StopTarget::Background(id.as_str().into()), cause);
            }
            BackgroundCommand::Wait(id) => match find(&id) {
                Ok(work) => self.wait_for(work),
                Err(why) => view.note(&why),
            },
        }
    }

    fn wait_for(&mut self, work: Arc<BackgroundWork>) {
        // Only one wait is possible at a time.
        self.wait.take().iter().for_each(AbortHandle::abort);
        let said = format!(
            "waiting for {} · Ctrl-C ends the wait; the work continues",
            work.id
        );
        self.chat.view.note(&said);
        let (handle, registration) = AbortHandle::new_pair();
        self.wait = Some(handle);
        let waiting = async move {
            work.ended().await;
            line(&work)
        };
        let said = Abortable::new(waiting, registration).map(|ended| FinishedWork::Said {
            said: ended
                .unwrap_or_else(|_given_up| "stopped waiting".to_owned())
                .into(),
            was_wait: true,
        });
        self.pending.push(said.boxed());
        self.apply(ChatEvent::Works(CommandWork::Waits));
    }

    fn target(&self, target: TypedTarget) -> Result<StopTarget, String> {
        Ok(match target {
            TypedTarget::Turn => StopTarget::Turn,
            TypedTarget::AllWork => StopTarget::TurnAndBackground,
            TypedTarget::Session => StopTarget::Session,
            TypedTarget::Background(id) => StopTarget::Background(id.as_str().into()),
            TypedTarget::Call(call) => {
                let calls = [self.own_calls(), self.nested_calls()].concat();
                StopTarget::Call(find_call(Some(&call), &calls)?)
            }
        })
    }

    /// Running calls of the turn, without the calls of its sub-agents.
    fn own_calls(&self) -> Vec<CommandCall> {
        let running = self.calls.iter().filter(|call| call.runs);
        let callable = |call: &KnownCall| CommandCall {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
        };
        running.map(callable).collect()
    }

    /// Running calls of sub-agents (agents that a tool call started), in the turn and in the background.
    fn nested_calls(&self) -> Vec<CommandCall> {
        let all = self.chat.session.preview(&StopTarget::TurnAndBackground);
        let nested = |item: &&ReceiptItem| item.kind == ItemKind::ToolCall && item.id.contains('/');
        let callable = |item: &ReceiptItem| CommandCall {
            id: CallId::new(Arc::clone(&item.id)),
            name: Arc::clone(&item.name),
        };
        all.items().iter().filter(nested).map(callable).collect()
    }
}

/// Running call that the argument of a command can name.
#[derive(Debug, Clone)]
struct CommandCall {
    id: CallId,
    name: Arc<str>,
}

/// Finds a call by its id, the beginning of its id, or the name of its tool. If `given` is `None`, selects the only
/// call. If no call matches, returns `given` as an id.
fn find_call(given: Option<&str>, calls: &[CommandCall]) -> Result<CallId, String> {
    let given = given.unwrap_or_default();
    if calls.iter().any(|call| call.id.as_str() == given) {
        return Ok(CallId::new(given));
    }
    let is_meant =
        |call: &&CommandCall| call.id.as_str().starts_with(given) || &*call.name == given;
    let found: Vec<_> = calls.iter().filter(is_meant).collect();
    match found.as_slice() {
        [call] => Ok(call.id.clone()),
        [] if !given.is_empty() => Ok(CallId::new(given)),
        [] => Err("no call is running".to_owned()),
        many => {
            let names: Vec<String> = many
                .iter()
                .map(|call| format!("{} ({})", call.id, call.name))
                .collect();
            Err(format!(
                "several calls match, choose one: {}",
                names.join(", ")
            ))
        }
    }
}

/// Formats orphaned background work (work that an earlier process left running) in one line.
fn left_line(left: &OrphanedWork) -> String {
    let file = left.output.as_ref();
    let file = file.map_or(String::new(), |file| format!(" · output in {file}"));
    format!("{}{file}", found_in_chat(left))
}

/// Formats a piece of background work in one line.
fn line(work: &BackgroundWork) -> String {
    let state = match work.end() {
        _ if work.is_detached() => "detached".to_owned(),
        None => "runs".to_owned(),
        Some(end) => {
            let state = plain(end.state.as_str());
            let code = end.exit_code;
            code.map_or(state.clone(), |code| format!("{state}, exit code {code}"))
        }
    };
    let place = work.output_place();
    let place = place.map_or(String::new(), |place| format!(" · {place}"));
    format!("{}: {state}: {}{place}", work.id, work.name)
}
