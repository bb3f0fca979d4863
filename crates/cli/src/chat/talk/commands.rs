//! Carries out the commands of a chat.

use std::sync::Arc;

use allstop_core::receipt::{ItemKind, ReceiptItem};
use allstop_core::{CallId, Cause, CauseKind};
use allstop_runtime::UnendedWork;
use allstop_session::{Session, StopTarget};
use allstop_tools::BackgroundWork;
use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable};

use super::done::Done;
use super::{KnownCall, Talk};
use crate::chat::command::{Background, Command, HELP, Target};
use crate::chat::complete::Names;
use crate::chat::desk::Event;
use crate::chat::transcript;
use crate::display::{found_in_words, plain};

/// Messages of `/history`: all that anybody scrolls through.
const HISTORY_MESSAGES: usize = 200;
/// Letters of each of those.
const HISTORY_LETTERS: usize = 2_000;

impl Talk<'_> {
    /// Carries a command out.
    pub(super) fn command(&mut self, command: Command) {
        let session = &self.chat.session;
        let screen = &self.chat.screen;
        match command {
            Command::Help => screen.text(HELP),
            Command::Stop(target) => match self.target(target) {
                Ok(target) => {
                    let cause = Cause::new(CauseKind::User).detail("/stop").by("cli");
                    self.stop(&target, cause);
                }
                Err(why) => screen.note(&why),
            },
            Command::Preview(target) => match self.target(target) {
                Ok(target) => screen.receipt(&session.preview(&target)),
                Err(why) => screen.note(&why),
            },
            Command::Background(what) => self.background(what),
            Command::Promote(call) => match meant(call.as_deref(), &self.own_calls()) {
                Ok(call) => screen.note(&match session.promote(&call) {
                    Ok(()) => format!("{call} goes on in the background"),
                    Err(error) => error.to_string(),
                }),
                Err(why) => screen.note(&why),
            },
            Command::Policy(None) => screen.note(&format!("policy {}", session.policy())),
            Command::Policy(Some(policy)) => {
                session.set_policy(policy);
                screen.note(&format!("policy {policy} from the next message on"));
            }
            Command::Undo => self.say_later(async |session| match session.undo().await {
                Ok(turn) => format!(
                    "turn {} is taken back; what its calls did in the world stays done",
                    turn.0
                ),
                Err(error) => format!("nothing is taken back: {error}"),
            }),
            Command::Compact => self.say_later(async |session| match session.compact().await {
                Ok(done) => format!("the summary: {}", done.summary),
                Err(error) => format!("nothing is compacted: {error}"),
            }),
            Command::History => self.say_later(async |session| match session.history().await {
                Ok(conversation) => {
                    let told = transcript::tell(&conversation, HISTORY_MESSAGES, HISTORY_LETTERS);
                    if told.is_empty() {
                        "nothing was said yet".to_owned()
                    } else {
                        told
                    }
                }
                Err(error) => format!("the history cannot be read: {error}"),
            }),
            // The desk leaves by itself.
            Command::Quit => {}
        }
    }

    /// Says what comes of it, once it is there.
    fn say_later<F>(&self, text: impl FnOnce(Session) -> F)
    where
        F: Future<Output = String> + Send + 'static,
    {
        let said = text(self.chat.session.clone()).map(|text| Done::Said {
            text,
            was_wait: false,
        });
        self.pending.push(said.boxed());
    }

    /// Names that a command can have now.
    pub(super) fn names(&self) -> Names {
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
        let ids = |calls: Vec<Callable>| calls.iter().map(|call| call.id.to_string()).collect();
        Names {
            background: background.map(|id| id.to_string()).collect(),
            calls: ids(self.own_calls()),
            nested: ids(self.nested_calls()),
        }
    }

    fn background(&mut self, what: Background) {
        let screen = &self.chat.screen;
        let works = self.chat.session.background();
        let left = self.chat.session.orphaned_work();
        let find = |id: &str| {
            if let Some(work) = works.iter().find(|work| work.id.as_str() == id) {
                return Ok(Arc::clone(work));
            }
            Err(match left.iter().find(|left| left.id.as_str() == id) {
                Some(left) => format!(
                    "{} · only its own process hears more of it",
                    left_line(left)
                ),
                None => format!("there is no {id}: /background lists what there is"),
            })
        };
        match what {
            Background::List => self.say_later(async |session| {
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
            Background::Output(id) => match find(&id) {
                Ok(work) => {
                    let output = work.output();
                    screen.text(&format!("{}\n[{}]", output.trim_end(), line(&work)));
                }
                Err(why) => screen.note(&why),
            },
            Background::Stop(id) => {
                let cause = Cause::new(CauseKind::User)
                    .detail("/background stop")
                    .by("cli");
                self.stop(&StopTarget::Background(id.as_str().into()), cause);
            }
            Background::Wait(id) => match find(&id) {
                Ok(work) => self.wait_for(work),
                Err(why) => screen.note(&why),
            },
        }
    }

    fn wait_for(&mut self, work: Arc<BackgroundWork>) {
        // One wait at a time.
        self.wait.take().iter().for_each(AbortHandle::abort);
        let said = format!(
            "waiting for {} · Ctrl-C gives up the wait, and stops nothing",
            work.id
        );
        self.chat.screen.note(&said);
        let (handle, registration) = AbortHandle::new_pair();
        self.wait = Some(handle);
        let waiting = async move {
            work.ended().await;
            line(&work)
        };
        let said = Abortable::new(waiting, registration).map(|ended| Done::Said {
            text: ended.unwrap_or_else(|_given_up| "not waited for any more".to_owned()),
            was_wait: true,
        });
        self.pending.push(said.boxed());
        self.apply(Event::Waits(true));
    }

    fn target(&self, target: Target) -> Result<StopTarget, String> {
        Ok(match target {
            Target::Turn => StopTarget::Turn,
            Target::TurnAndBackground => StopTarget::TurnAndBackground,
            Target::Session => StopTarget::Session,
            Target::Background(id) => StopTarget::Background(id.as_str().into()),
            Target::Call(call) => {
                let calls = [self.own_calls(), self.nested_calls()].concat();
                StopTarget::Call(meant(Some(&call), &calls)?)
            }
        })
    }

    /// The calls of the turn that run.
    fn own_calls(&self) -> Vec<Callable> {
        let running = self.calls.iter().filter(|call| call.runs);
        let callable = |call: &KnownCall| Callable {
            id: call.id.clone(),
            name: Arc::clone(&call.name),
        };
        running.map(callable).collect()
    }

    /// The calls of sub-agents that run, in the turn and in the background.
    fn nested_calls(&self) -> Vec<Callable> {
        let all = self.chat.session.preview(&StopTarget::TurnAndBackground);
        let nested = |item: &&ReceiptItem| item.kind == ItemKind::ToolCall && item.id.contains('/');
        let callable = |item: &ReceiptItem| Callable {
            id: CallId::new(Arc::clone(&item.id)),
            name: Arc::clone(&item.name),
        };
        all.items().iter().filter(nested).map(callable).collect()
    }
}

/// A call that can be named in a command.
#[derive(Debug, Clone)]
struct Callable {
    id: CallId,
    name: Arc<str>,
}

/// The call that is meant: by its id, the beginning of one, or the name of its tool; `None`: the only one.
fn meant(given: Option<&str>, calls: &[Callable]) -> Result<CallId, String> {
    let given = given.unwrap_or_default();
    if calls.iter().any(|call| call.id.as_str() == given) {
        return Ok(CallId::new(given));
    }
    let is_meant = |call: &&Callable| call.id.as_str().starts_with(given) || &*call.name == given;
    let meant: Vec<_> = calls.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [call] => Ok(call.id.clone()),
        [] if !given.is_empty() => Ok(CallId::new(given)),
        [] => Err("no call runs".to_owned()),
        many => {
            let names: Vec<String> = many
                .iter()
                .map(|call| format!("{} ({})", call.id, call.name))
                .collect();
            Err(format!("which one? {}", names.join(", ")))
        }
    }
}

/// Background work that runs without this process, in one line.
fn left_line(left: &UnendedWork) -> String {
    let file = left.output.as_ref();
    let file = file.map_or(String::new(), |file| format!(" · output in {file}"));
    format!("{}{file}", found_in_words(left))
}

/// One piece of background work, in one line.
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
    let file = work.output_file.as_ref();
    let file = file.map_or(String::new(), |file| {
        format!(" · output in {}", file.display())
    });
    format!("{}: {state}: {}{file}", work.id, work.name)
}
