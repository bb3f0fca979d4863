//! `allstop watch`: shows a session that runs in another process, and lets the user answer its permission questions.

mod view;

use allstop_terminal::{JobChange, PromptReply};

use super::open_session::{
    AskedProcesses, ask_processes, find_open_session, no_session, resolve_list_number,
};
use crate::args::WatchArgs;
use crate::control::{EndSignal, UNREAD};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::questions::permission_of;
use crate::short_id::LAST;
use crate::stream_reader::StreamReader;
use crate::suspend::{job_control, suspend_watch};
use allstop_remote::{AnswerParams, RemoteError};
use view::WatchView;

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// Dropping the future does not stop the session.
pub(crate) async fn watch(args: &WatchArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let mut signals = host.signals()?;
    let AskedProcesses {
        open,
        silent: problems,
        ..
    } = ask_processes(&host.sockets).await?;
    let id = resolve_list_number(&args.id, &open, &args.store, host).await?;
    let Some(target) = find_open_session(open, &id)? else {
        if args.id == LAST || !problems.is_empty() {
            return Err(no_session(&problems));
        }
        let message = format!("no process has the session `{}` open", args.id);
        return Err(CliError::not_found(message)
            .hint("`allstop ps` lists open sessions, `allstop sessions list` all sessions"));
    };
    let attached = target.process.watch(&target.session).await;
    let mut events = attached.map_err(|error| CliError::failure(error.to_string()))?;
    let mut view = WatchView::new(args, &target, host);
    view.begin(&target);
    let mut job = job_control()?;
    let mut reader = StreamReader::new(args.json);
    let by = format!("allstop watch in process {}", std::process::id());
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                view.detached(&target.session);
                return Ok(match signal {
                    EndSignal::Interrupt => 0,
                    signal => signal.exit_code(),
                });
            }
            change = job.next() => match change {
                JobChange::Suspend => {
                    let (queue, style) = view.queue();
                    let queue = queue.clone();
                    suspend_watch((&queue, style), || view.give_back());
                }
                JobChange::Resumed => view.resumed(),
                JobChange::Resized => view.redraw(),
            },
            () = reader.gone() => return Ok(UNREAD),
            reply = view.next_reply() => {
                let (number, answer) = match reply {
                    PromptReply::Answer(number, answer) => (number, permission_of(&answer)),
                    PromptReply::ShowMore(number) => {
                        view.show_more(number);
                        continue;
                    }
                };
                // If this terminal is closed, it sends no answer, and the question stays open for other terminals.
                let Some(answering) = view.answering(number) else { continue };
                let params = AnswerParams {
                    session_id: target.session.clone(),
                    question_id: answering.id.clone(),
                    answer: answer.clone().into(),
                    by: by.clone(),
                };
                let answered = target.process.answer(&params).await;
                view.answered(&answering, &answer, &answered);
            }
            event = events.next() => match event {
                Ok(Some(event)) => view.event(event),
                Ok(None) => {
                    view.ended(&target.session);
                    return Ok(0);
                }
                Err(error) => {
                    view.end();
                    return Err(gone(&error, target.session.as_str()));
                }
            },
        }
    }
}

/// Error for a process that ended without closing the session, or that sent an unreadable message.
fn gone(error: &RemoteError, session: &str) -> CliError {
    let message = match error {
        RemoteError::Closed(pid) | RemoteError::Io { pid, .. } => {
            format!("process {pid} ended without closing its session")
        }
        other => other.to_string(),
    };
    CliError::failure(message).hint(format!(
        "`allstop sessions show {session}` shows its records; `allstop stop {session}` stops its remaining work"
    ))
}
