//! A chat without a terminal: each line of standard input is a message, one after the other.

use std::sync::Arc;

use allstop_agent::AgentEvent;
use allstop_core::Cause;
use allstop_session::{
    FollowUp, MessageOutcome, NewMessage, SendError, SessionEvent, SessionEventKind,
};
use futures::FutureExt as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin};

use super::screen::is_worth_showing;
use super::{Chat, code_of, leave, recorded};
use crate::Exit;
use crate::control::Effect;
use crate::supervise::Supervisor;

/// The longest line: no model takes more.
const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Sends the first message, and then line by line. The first one that is not completed ends it, as in `run`.
pub(super) async fn talk(
    mut chat: Chat<'_>,
    mut supervisor: Supervisor,
    first: Option<String>,
) -> Exit {
    let mut lines = Lines::new();
    let mut next = first.map(Ok);
    loop {
        let line = match next.take() {
            Some(line) => line,
            None => match lines.next(&mut chat, &mut supervisor).await {
                Ok(Some(line)) => line,
                Ok(None) => return leave::leave(chat, supervisor, None, 0).await,
                Err(cause) => return leave::leave(chat, supervisor, Some(cause), 0).await,
            },
        };
        let outcome = match line {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => answer(&mut chat, &mut supervisor, line).await,
            Err(why) => {
                chat.screen.error(&why, None);
                return leave::leave(chat, supervisor, None, 2).await;
            }
        };
        match outcome {
            Ok(Ok(outcome)) if outcome.is_completed() => {}
            Ok(Ok(outcome)) => {
                let code = code_of(outcome.stop_reason, &supervisor.control);
                return leave::leave(chat, supervisor, None, code).await;
            }
            Ok(Err(error)) => {
                chat.screen.error(&error.to_string(), None);
                return leave::leave(chat, supervisor, None, 1).await;
            }
            Err(cause) => return leave::leave(chat, supervisor, Some(cause), 0).await,
        }
    }
}

/// Sends one message and shows its turn to its end. `Err`: a signal came first.
async fn answer(
    chat: &mut Chat<'_>,
    supervisor: &mut Supervisor,
    line: String,
) -> Result<Result<Arc<MessageOutcome>, SendError>, Cause> {
    let sent = match chat
        .session
        .send(NewMessage::from(line).policy(FollowUp::Enqueue))
    {
        Ok(sent) => sent,
        Err(error) => return Ok(Err(error)),
    };
    let outcome = loop {
        tokio::select! {
            biased;
            effect = supervisor.next() => if let Effect::Stop(cause) = effect {
                return Err(cause);
            },
            Ok(Some(event)) = chat.events.next() => show(chat, &event),
            change = chat.news.next() => chat.screen.note(&change.to_string()),
            outcome = sent.outcome() => break outcome,
        }
    };
    while let Some(Ok(Some(event))) = chat.events.next().now_or_never() {
        show(chat, &event);
    }
    let answer = outcome.is_completed().then_some(&*outcome.output);
    chat.screen.end_turn(answer);
    chat.screen.outcome(&outcome);
    if let Some(receipt) = outcome.receipt.as_deref().filter(|r| is_worth_showing(r)) {
        chat.screen.receipt(receipt);
    }
    Ok(Ok(outcome))
}

fn show(chat: &mut Chat<'_>, event: &SessionEvent) {
    match &event.kind {
        SessionEventKind::Recorded { record, .. } => {
            if let Some(said) = recorded::in_words(record, event.message.is_some()) {
                chat.screen.note(&said);
            }
        }
        SessionEventKind::Live(live) => {
            chat.screen.agent(live);
            if let (AgentEvent::TurnEnded { .. }, None) = (live, &event.message) {
                chat.screen.end_turn(None);
            }
        }
        SessionEventKind::Missed { count } => chat.screen.missed(*count),
        _ => {}
    }
}

/// The lines of standard input.
struct Lines {
    input: BufReader<Stdin>,
    /// What was read of the next one.
    begun: Vec<u8>,
}

impl Lines {
    fn new() -> Self {
        Self {
            input: BufReader::new(tokio::io::stdin()),
            begun: Vec::new(),
        }
    }

    /// The next line, or why it is none; `None` at the end. `Err`: a signal came first.
    async fn next(
        &mut self,
        chat: &mut Chat<'_>,
        supervisor: &mut Supervisor,
    ) -> Result<Option<Result<String, String>>, Cause> {
        loop {
            let mut input = (&mut self.input).take(LINE_BYTES_MAX + 1);
            tokio::select! {
                biased;
                effect = supervisor.next() => if let Effect::Stop(cause) = effect {
                    return Err(cause);
                },
                // Of a turn that begins by itself.
                Ok(Some(event)) = chat.events.next() => show(chat, &event),
                change = chat.news.next() => chat.screen.note(&change.to_string()),
                read = input.read_until(b'\n', &mut self.begun) => return Ok(match read {
                    Err(error) => Some(Err(format!("standard input cannot be read: {error}"))),
                    Ok(_) if self.begun.is_empty() => None,
                    Ok(_) => Some(text(std::mem::take(&mut self.begun))),
                }),
            }
        }
    }
}

fn text(mut line: Vec<u8>) -> Result<String, String> {
    if line.len() as u64 > LINE_BYTES_MAX {
        let most = LINE_BYTES_MAX / (1024 * 1024);
        return Err(format!(
            "a line of standard input is longer than {most} MiB"
        ));
    }
    while line
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        line.pop();
    }
    String::from_utf8(line).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("a line of standard input is not UTF-8: its byte {at} is not")
    })
}
