//! Compiles a script file: checks the file, and converts it to the form that the scripted model plays.

use std::fmt;
use std::time::Duration;

use allstop_core::message::Arguments;
use serde_json::json;
use serde_saphyr::{Location, Spanned};

use super::choose::{CompiledScript, CompiledTurn};
use super::file::{ErrorAt, ScriptCall, ScriptError, ScriptFile, ScriptReply, StallAt};
use super::reply::{Pause, Reply, ReplyStep, cut};
use crate::{ModelError, ModelErrorKind};

/// Maximum number of nodes of a script. A node is a value of YAML, such as a word or a list. The recording of a whole
/// day has fewer nodes. The limit refuses malicious scripts, which would take all memory.
const SCRIPT_NODES_MAX: usize = 20_000_000;

/// Error in a script, and its position in the script.
#[derive(Debug)]
pub(super) struct ScriptProblem {
    at: Option<Location>,
    message: String,
}

impl fmt::Display for ScriptProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}: ", at.line(), at.column())?;
        } else {
            f.write_str(" ")?;
        }
        f.write_str(&self.message)
    }
}

impl From<serde_saphyr::Error> for ScriptProblem {
    fn from(error: serde_saphyr::Error) -> Self {
        let at = error.location().filter(|at| *at != Location::UNKNOWN);
        let text = error.without_snippet().to_string();
        let mut message = text.lines().next().unwrap_or_default();
        // The prefix of the message already contains the position.
        if let Some(at) = at {
            let place = format!(" at line {}, column {}", at.line(), at.column());
            message = message.strip_suffix(&place).unwrap_or(message);
        }
        Self {
            at,
            message: message.to_owned(),
        }
    }
}

/// Reads a script.
pub(super) fn parse(text: &str) -> Result<CompiledScript, ScriptProblem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: SCRIPT_NODES_MAX,
            max_events: 2 * SCRIPT_NODES_MAX,
            max_total_scalar_bytes: 1024 * 1024 * 1024,
        },
        with_snippet: false,
    };
    let file: ScriptFile = serde_saphyr::from_str_with_options(text, options)?;
    if file.turns.is_empty() && file.replies.is_empty() {
        let message = "the script has neither `replies` nor `turns`".to_owned();
        return Err(ScriptProblem { at: None, message });
    }
    let mut turns = Vec::with_capacity(file.turns.len());
    for turn in file.turns {
        turns.push(CompiledTurn::new(
            turn.when,
            turn.images,
            replies(turn.replies)?,
        ));
    }
    Ok(CompiledScript::new(
        file.order,
        turns,
        replies(file.replies)?,
    ))
}

fn replies(written: Vec<Spanned<ScriptReply>>) -> Result<Vec<Reply>, ScriptProblem> {
    written
        .into_iter()
        .map(|reply| {
            let at = Some(reply.referenced);
            compile(reply.value).map_err(|message| ScriptProblem { at, message })
        })
        .collect()
}

/// Compiles a reply. The error names conflicting fields.
fn compile(written: ScriptReply) -> Result<Reply, String> {
    let ScriptReply {
        reasoning,
        text,
        chunks,
        calls,
        delay,
        stall,
        stall_for,
        error,
        disconnect,
        usage,
        finish,
    } = written;
    if text.is_some() && !chunks.is_empty() {
        return Err("a reply has `text` or `chunks`, not both".into());
    }
    if stall_for.is_some() && stall.is_none() {
        return Err("`stall_for` needs `stall`, which says where".into());
    }
    let pause = stall_for.map_or(Pause::Forever, |duration| Pause::For(duration.0));
    let delay = delay.map(|delay| delay.0);
    let error = error.map(failure).transpose()?;
    let error_mid_stream = matches!(&error, Some((_, _, ErrorAt::MidStream)));
    if disconnect && error.is_some() {
        return Err("a reply has `error` or `disconnect`, not both".into());
    }
    let breaks = stall == Some(StallAt::MidStream) || disconnect || error_mid_stream;

    let mut pieces = ReplyPieces {
        delay,
        by_word: breaks || delay.is_some(),
        list: Vec::new(),
    };
    if let Some(reasoning) = reasoning {
        pieces.push_text(&reasoning, |text| ReplyStep::Reasoning(text.into()));
    }
    if let Some(text) = text {
        pieces.push_text(&text, |text| ReplyStep::Text(text.into()));
    }
    for chunk in chunks {
        let step = match (chunk.text, chunk.reasoning) {
            (Some(text), None) => ReplyStep::Text(text.into()),
            (None, Some(text)) => ReplyStep::Reasoning(text.into()),
            _ => return Err("a chunk has either `text` or `reasoning`".into()),
        };
        pieces.push(chunk.after.map(|after| after.0).or(delay), step);
    }
    for written in calls {
        let after = written.after.map(|after| after.0).or(delay);
        let (bytes, step) = call(written)?;
        if breaks {
            pieces.push(after, ReplyStep::Progress { bytes: bytes / 2 });
        }
        pieces.push(after, step);
    }

    let mut reply = Reply {
        finish,
        ..Reply::default()
    };
    match stall {
        Some(StallAt::Connect) => reply.connect_stall = Some(pause),
        Some(StallAt::FirstToken) => reply = reply.pause(pause),
        Some(StallAt::MidStream | StallAt::End) | None => {}
    }
    let (middle, end) = match error {
        Some((error, times, ErrorAt::Start)) => {
            reply.error = Some((error, times));
            (None, None)
        }
        Some((error, _, ErrorAt::MidStream)) => (Some(ReplyStep::Fail(error)), None),
        Some((error, _, ErrorAt::End)) => (None, Some(ReplyStep::Fail(error))),
        None if disconnect => (Some(ReplyStep::Fail(cut())), None),
        None => (None, None),
    };
    let stall_here = |at| (stall == Some(at)).then_some(ReplyStep::Pause(pause));
    let (first, second) = pieces.list.split_at(pieces.list.len().div_ceil(2));
    reply.steps.extend(first.iter().flatten().cloned());
    reply
        .steps
        .extend(stall_here(StallAt::MidStream).into_iter().chain(middle));
    reply.steps.extend(second.iter().flatten().cloned());
    reply
        .steps
        .extend(stall_here(StallAt::End).into_iter().chain(end));
    if let Some(usage) = usage {
        reply = reply.usage(usage.input_tokens, usage.output_tokens);
    }
    Ok(reply)
}

/// Pieces of a reply. Each piece includes the pause before it.
struct ReplyPieces {
    delay: Option<Duration>,
    by_word: bool,
    list: Vec<Vec<ReplyStep>>,
}

impl ReplyPieces {
    fn push(&mut self, after: Option<Duration>, step: ReplyStep) {
        let wait = after
            .filter(|wait| !wait.is_zero())
            .map(|wait| ReplyStep::Pause(Pause::For(wait)));
        self.list.push(wait.into_iter().chain([step]).collect());
    }

    fn push_text(&mut self, text: &str, step: impl Fn(&str) -> ReplyStep) {
        if self.by_word {
            for word in text.split_inclusive(char::is_whitespace) {
                self.push(self.delay, step(word));
            }
        } else if !text.is_empty() {
            self.push(None, step(text));
        }
    }
}

fn call(written: ScriptCall) -> Result<(usize, ReplyStep), String> {
    let ScriptCall {
        tool,
        arguments,
        malformed_arguments,
        id,
        after: _,
    } = written;
    let arguments = match (arguments, malformed_arguments) {
        (Some(_), Some(_)) => {
            return Err("a call has `arguments` or `malformed_arguments`, not both".into());
        }
        (None, Some(text)) => Arguments::Malformed(text.into()),
        (arguments, None) => Arguments::Json(arguments.unwrap_or_else(|| json!({})).into()),
    };
    let bytes = match &arguments {
        Arguments::Json(value) => value.to_string().len(),
        Arguments::Malformed(text) => text.len(),
    };
    Ok((
        bytes,
        ReplyStep::Call {
            id: id.map(Into::into),
            name: tool.into(),
            arguments,
        },
    ))
}

fn failure(written: ScriptError) -> Result<(ModelError, Option<u32>, ErrorAt), String> {
    let ScriptError {
        kind,
        status,
        message,
        retry_after,
        times,
        at,
    } = written;
    let (kind, default_message) = match (kind, status) {
        (Some(kind), None) => (kind, format!("{} (from the script)", kind.as_str())),
        (None, Some(status)) => (
            ModelErrorKind::of_status(status)
                .ok_or_else(|| format!("the status {status} is not an error"))?,
            format!("the provider answered {status}"),
        ),
        _ => return Err("an error has either `kind` or `status`".into()),
    };
    if times.is_some() && at != ErrorAt::Start {
        return Err("`times` is for errors at the start".into());
    }
    let error = ModelError::new(kind, message.unwrap_or(default_message))
        .with_retry_after(retry_after.map(|wait| wait.0));
    Ok((error, times, at))
}
