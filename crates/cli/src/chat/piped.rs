//! A chat without a terminal: each line of standard input is a message. The chat sends the next message after the
//! outcome of the previous message.

use allstop_agent::AgentEvent;
use allstop_core::Cause;
use allstop_session::{FollowUp, NewMessage, SessionEvent, SessionEventKind};
use futures::FutureExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin};

use super::call_outputs::CallOutputs;
use super::{OpenChat, leave};
use crate::control::ControlEffect;
use crate::display::recorded;
use crate::display::{EventView as _, is_worth_showing};
use crate::exit::Exit;
use crate::image_names::{is_image_name, names, sent_as_text};
use crate::supervise::Supervisor;
use crate::typed_command::TypedCommand;

/// Maximum bytes of a line. No model accepts a longer message.
const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Sends the first message, and then each line. If the turn of a message does not complete, the chat ends, as `run`
/// does.
pub(super) async fn run(
    mut chat: OpenChat<'_>,
    mut supervisor: Supervisor,
    first: Option<String>,
) -> Exit {
    let (cause, code) = match answer_all(&mut chat, &mut supervisor, first).await {
        Ok(code) => (None, code),
        Err(cause) => (Some(cause), 0),
    };
    leave::leave(chat, supervisor, cause, code).await
}

/// Sends all messages and returns the exit code. Returns `Err` if a signal arrives first.
async fn answer_all(
    chat: &mut OpenChat<'_>,
    supervisor: &mut Supervisor,
    first: Option<String>,
) -> Result<u8, Cause> {
    let mut input = BufReader::new(tokio::io::stdin());
    let mut next = first;
    loop {
        let line = match next.take() {
            Some(line) => line,
            None => match wait(chat, supervisor, next_line(&mut input)).await? {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(0),
                Err(why) => {
                    chat.view.error(&why, None);
                    return Ok(2);
                }
            },
        };
        if line.trim().is_empty() {
            continue;
        }
        let line = match TypedCommand::find(&line, chat.system.definitions()) {
            TypedCommand::Expanded { text, .. } => text,
            TypedCommand::Literal(text) => text.to_owned(),
            TypedCommand::None | TypedCommand::Unknown(_) => line,
        };
        for name in names(&line).iter().filter(|name| is_image_name(name)) {
            chat.view.note(&sent_as_text(name));
        }
        let message = NewMessage::from(line).policy(FollowUp::Enqueue);
        let sent = match chat.session.send(message) {
            Ok(sent) => sent,
            Err(error) => {
                chat.view.error(&error.to_string(), None);
                return Ok(1);
            }
        };
        let outcome = match wait(chat, supervisor, sent.outcome()).await {
            Ok(outcome) => outcome,
            Err(cause) => {
                // The turn may already be committed, although its hooks have not finished. So show the current outcome.
                let now = chat.session.outcome_now(&sent, None);
                chat.view.end_turn(Some(&now));
                return Err(cause);
            }
        };
        chat.view.end_turn(Some(&outcome));
        chat.view.outcome(&outcome, &CallOutputs::default());
        if let Some(receipt) = outcome.receipt.as_ref().filter(|r| is_worth_showing(r)) {
            chat.show_receipt(receipt);
        }
        if !outcome.is_completed() {
            return Ok(supervisor.control.exit_code(outcome.stop_reason));
        }
    }
}

/// Waits, and meanwhile shows events, including the events of a turn that background work begins. Returns `Err` if a
/// signal arrives first.
async fn wait<T>(
    chat: &mut OpenChat<'_>,
    supervisor: &mut Supervisor,
    wait: impl Future<Output = T>,
) -> Result<T, Cause> {
    tokio::pin!(wait);
    let waited = loop {
        tokio::select! {
            biased;
            effect = supervisor.next() => if let ControlEffect::Stop(cause) = effect {
                return Err(cause);
            },
            Ok(Some(event)) = chat.events.next() => show(chat, &event),
            change = chat.news.next() => chat.view.note(&change.to_string()),
            waited = &mut wait => break waited,
        }
    };
    while let Some(Ok(Some(event))) = chat.events.next().now_or_never() {
        show(chat, &event);
    }
    Ok(waited)
}

fn show(chat: &mut OpenChat<'_>, event: &SessionEvent) {
    match &event.kind {
        SessionEventKind::Recorded { record, .. } => {
            if let Some(said) = recorded::describe(record, event.message.is_some()) {
                chat.view.note(&said);
            }
        }
        SessionEventKind::Live(live) => {
            chat.view.live.event(live);
            if let (AgentEvent::TurnEnded { .. }, None) = (live, &event.message) {
                chat.view.end_turn(None);
            }
        }
        SessionEventKind::Missed { count } => chat.view.live.missed(*count),
        _ => {}
    }
}

/// Reads the next line of standard input; `None` at its end. The error is a message for the user.
async fn next_line(input: &mut BufReader<Stdin>) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let mut input = input.take(LINE_BYTES_MAX + 1);
    match input.read_until(b'\n', &mut line).await {
        Err(error) => Err(format!("standard input cannot be read: {error}")),
        Ok(0) => Ok(None),
        Ok(_) => text(line).map(Some),
    }
}

fn text(mut line: Vec<u8>) -> Result<String, String> {
    if line.len() as u64 > LINE_BYTES_MAX {
        let most = LINE_BYTES_MAX / (1024 * 1024);
        return Err(format!(
            "a line of standard input is longer than {most} MiB"
        ));
    }
    while let Some(b'\n' | b'\r') = line.last() {
        line.pop();
    }
    String::from_utf8(line).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("a line of standard input is not UTF-8: byte {at} is invalid")
    })
}
