//! `allstop chat`: a conversation at the terminal.
//!
//! The module `state` makes the decisions; its functions are synchronous. `chat_loop` passes events to `state` and
//! carries out its decisions, and `view` shows the output. If standard input is not a terminal, `piped` sends each line
//! of the input as a message.

mod attached;
mod call_outputs;
mod chat_loop;
mod choice;
mod command;
mod complete;
mod leave;
mod next;
mod open_chat;
mod piped;
mod said;
mod server_content;
mod state;
mod status;
mod view;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::StopReason;
use allstop_core::receipt::ItemKind;
use allstop_core::turn::StopPolicy;
use allstop_runtime::{Config, Envelope, QuestionRecipient};
use allstop_scope::{GRACE_DEFAULT, Scope, WorkSpec};
use allstop_session::FollowUp;
use allstop_terminal::{InputHistory, InputReader, TerminalDevice};
use allstop_tools::PermissionAnswer;
use allstop_tools::permission::FixedAnswer;

use crate::args::{ChatArgs, ChatWith};
use crate::control::Control;
use crate::display::{describe_instructions, describe_interrupted, found_in_chat};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::start::options::{self, HostOptions};
use crate::start::project::TrustedProject;
use crate::start::{self, NamedSession, Opened, Opening, StartFailure, StartReporter, read};
use crate::supervise::Supervisor;
use allstop_remote::TerminalSession;
use choice::ChatSession;
pub(crate) use command::without_builtin_names;
use next::{ChatEnd, NextChat};
use open_chat::{ChatInput, OpenChat};
use view::ChatView;

/// Runs the command.
///
/// # Cancel safety
/// Dropping the future is like a crash of the session: the session's work is dropped, and no receipt reports the work.
pub(crate) async fn chat(mut args: ChatArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    if args.with.json || args.with.stream_json {
        return Err(CliError::usage("`chat` has no JSON output").hint(
            "`allstop run --session last --json \"…\"` sends one message and prints its envelope",
        ));
    }
    let mut shows_conversation = true;
    let mut reader = None;
    // The command line of the chat before a change, to which the user returns if the next chat cannot begin.
    let mut back: Option<ChatArgs> = None;
    loop {
        let ended = Box::pin(one_chat(&args, shows_conversation, &mut reader, host)).await;
        match (ended, back.take()) {
            (Ok(ChatEnd::Next(next, session, keys)), _) => {
                shows_conversation = !next.is_shown();
                // The list of sessions has its own reader.
                reader = Some(*keys).filter(|_| next != NextChat::Session(None));
                let same = NextChat::Session(Some(session.to_string()));
                back = Some(same.args(args.clone(), &session));
                args = next.args(args, &session);
            }
            (
                Ok(ChatEnd::NotOpened {
                    was_stopped: false, ..
                }),
                Some(earlier),
            ) => {
                shows_conversation = false;
                args = earlier;
            }
            (Err(problem), Some(earlier)) => {
                let view = ChatView::new(host, host.output.terminal());
                view.error(&problem.message, problem.hint.as_deref());
                shows_conversation = false;
                args = earlier;
            }
            (Ok(ChatEnd::Left(exit) | ChatEnd::NotOpened { exit, .. }), _) => return Ok(exit),
            (Err(problem), None) => return Err(problem),
        }
    }
}

/// Runs a chat until the user leaves it or goes on in another chat. If the chat cannot begin, the reader stays in
/// `reader`, with the keys that were typed meanwhile.
async fn one_chat(
    args: &ChatArgs,
    shows_conversation: bool,
    reader: &mut Option<InputReader>,
    host: &ProcessHost,
) -> Result<ChatEnd, CliError> {
    let signals = host.signals()?;
    let grace = args.with.grace.or_default();
    let mut supervisor = Supervisor::new(signals, Control::new(grace));
    let terminal = host
        .output
        .terminal()
        .filter(|_| std::io::stdin().is_terminal());
    let tty = terminal.and_then(|_| TerminalDevice::of_process());
    let view = ChatView::new(host, tty.as_ref().and(terminal));
    let asks = match (args.with.permissions.yes, args.with.permissions.deny, &tty) {
        (false, false, Some(_)) => QuestionRecipient::Subscribers,
        _ => QuestionRecipient::Prompter,
    };
    let choice = ChatSession::of(args, terminal.filter(|_| tty.is_some()))?;
    let is_resumed = !matches!(choice, ChatSession::New);
    let opened = open(args, choice, asks, host, &mut supervisor, &view).await;
    let OpenedChat {
        opened,
        history,
        reader: chooser,
    } = match opened {
        Ok(opened) => opened,
        Err(StartFailure::Usage(problem)) => return Err(problem),
        Err(StartFailure::Ended(envelope)) => {
            return Ok(ChatEnd::NotOpened {
                exit: not_opened(&view, &supervisor.control, &envelope),
                was_stopped: supervisor.control.stop_reason() == StopReason::Shutdown,
            });
        }
    };
    greet(&view, &opened, is_resumed && shows_conversation).await;
    let Opened {
        system,
        listener,
        open,
        mode,
        ..
    } = opened;
    let configured = system.config().store.path.as_deref();
    let store_flags = SameFlags::of_used_store(&args.with.model, &args.store, configured);
    let remote = TerminalSession::new(listener, &open.session, system.store_file());
    let chat = OpenChat {
        remote,
        store_flags,
        answers: args.with.permissions.flag(),
        host,
        news: system.mcp().status_events(),
        system,
        events: open.session.subscribe(None),
        session: open.session,
        view,
        mode,
        keeps_background: args.with.keep_background,
        config_file: args
            .with
            .model
            .config
            .clone()
            .or_else(ProcessHost::config_path),
        flags: SameFlags::of_chat(&args.with, &args.store),
    };
    chat.remote
        .listener
        .problem()
        .iter()
        .for_each(|said| chat.view.note(said));
    let first = args.first_message();
    match tty {
        Some(tty) => {
            let input = ChatInput {
                device: tty,
                reader: reader.take().or(chooser),
                history,
                first,
            };
            Box::pin(chat_loop::run(chat, supervisor, input)).await
        }
        None => Ok(ChatEnd::Left(piped::run(chat, supervisor, first).await)),
    }
}

/// Shows the reason why the chat cannot begin: a failure, or a stop that arrived during the start.
fn not_opened(view: &ChatView, control: &Control, envelope: &Envelope) -> Exit {
    if let Some(error) = &envelope.error {
        view.error(&error.to_string(), error.hint.as_deref());
    }
    if let Some(receipt) = &envelope.receipt {
        view.receipt(receipt);
    }
    Exit {
        code: control.exit_code(envelope.stop_reason),
        output_wait: control.output_wait(Instant::now()),
    }
}

fn config(
    with: &ChatWith,
    continues: bool,
    given: &HostOptions,
    project: &TrustedProject,
) -> Result<Config, CliError> {
    let mut config = if continues {
        // The session may remember its model, so the configuration need not name one.
        options::config_of(&with.model, project)?
    } else {
        options::config_with_model(&with.model, "chat", given, project)?
    };
    with.permissions.set_mode(&mut config);
    config.deadlines.grace = with.grace.time.or(config.deadlines.grace);
    // A message that is sent during a turn must not end the work of the turn without a word.
    let follow_up = with.policy.or(config.session.follow_up);
    config.session.follow_up = follow_up.or(Some(FollowUp::Steer));
    if let Some(steps) = with.max_steps {
        config.limits.max_steps = steps.get();
    }
    // In a chat, the default policy for stopped turns is `keep`: the completed steps stay in the conversation, and the
    // user continues from there.
    config.on_stop = with.on_stop.or(config.on_stop).or(Some(StopPolicy::Keep));
    Ok(config)
}

/// An open session with its system.
struct OpenedChat {
    opened: Opened,
    /// Lines that were typed in earlier chats.
    history: InputHistory,
    /// Reader of the terminal, if the user chose the session there.
    reader: Option<InputReader>,
}

async fn open(
    args: &ChatArgs,
    choice: ChatSession<'_>,
    asks: QuestionRecipient,
    host: &ProcessHost,
    supervisor: &mut Supervisor,
    view: &ChatView,
) -> Result<OpenedChat, StartFailure> {
    let with = args.with.clone();
    let (store, continues) = (args.store.clone(), !matches!(choice, ChatSession::New));
    let project = start::project::choose(&with.model, host, supervisor).await?;
    let given = HostOptions::of(host);
    let types = view.types;
    let options = read(given.scopes.clone(), supervisor, move |_| {
        let answer = with.permissions.answer();
        let answer = answer.unwrap_or(PermissionAnswer::Unanswered);
        let prompter = Arc::new(FixedAnswer(answer));
        let record = with.model.record.clone();
        let config = config(&with, continues, &given, &project)?;
        let definitions = start::definitions::load(&project.definitions, &given.reporter);
        let store = ProcessHost::store(&store, config.store.path.clone())?;
        options::note_unusable_servers(&config, &given.reporter);
        let mut system = options::system(store, record, given, config, prompter);
        system.definitions = definitions;
        let history = system
            .store
            .history_file()
            .filter(|_| types)
            .map(InputHistory::load);
        Ok((system, history))
    });
    let (system, history) = options.await?;
    let history = match history {
        Some((history, file)) => {
            let spec = WorkSpec::new(ItemKind::Thread, "writing what was typed");
            let scope = Scope::root("history", host.scopes());
            // No code waits for this thread, which ends with the chat. If the thread cannot start, the typed lines are
            // not saved.
            drop(scope.spawn_blocking(spec, move |_| file.write()));
            history
        }
        None => InputHistory::in_memory(),
    };
    let grace = system.config.deadlines.grace;
    let grace = grace.map_or(GRACE_DEFAULT, Duration::from);
    supervisor.control.set_grace(grace);
    let chosen = choice.name(&system.store, host, supervisor).await?;
    let session = chosen.as_ref().map(|chosen| {
        NamedSession::new(
            &chosen.name,
            "sessions resume",
            &args.with.model,
            &args.store,
        )
    });
    // The chat uses the same reader: text that is typed while the session opens becomes input of the chat.
    let reader = chosen.and_then(|chosen| chosen.reader);
    let opening = Opening {
        command: "chat",
        system,
        session,
        asks,
        reporter: StartReporter::new(host),
        sockets: host.sockets.clone(),
    };
    let opened = start::open(opening, supervisor, |said| view.hint(said)).await?;
    Ok(OpenedChat {
        opened,
        history,
        reader,
    })
}

/// Shows the session, the project's instructions for the model, and the work that an earlier process left running.
async fn greet(view: &ChatView, opened: &Opened, is_resumed: bool) {
    let talked = &opened.open;
    let id = talked.session.id();
    view.hint(&format!("session {id} · /help lists commands and keys"));
    if let Some(model) = &opened.continued.model {
        view.hint(model);
    }
    if let Some(folder) = &opened.continued.folder {
        view.note(folder);
    }
    for line in describe_instructions(&talked.instructions) {
        view.note(&line);
    }
    if !is_resumed {
        return;
    }
    match talked.session.history().await {
        Ok(conversation) => {
            view.transcript(&conversation, talked.session.id());
        }
        Err(error) => view.error(&error.to_string(), None),
    }
    if let Some(turn) = &talked.interrupted {
        view.note(&format!("› {}", turn.input));
        view.note(describe_interrupted(turn));
        view.effects(&turn.effects);
    }
    for found in &talked.found {
        view.note(&found_in_chat(found));
    }
}
