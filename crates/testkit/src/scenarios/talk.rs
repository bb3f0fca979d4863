//! A model for sessions: what it says depends on the newest words alone, so that it is the same whatever was stopped
//! before.

use std::sync::Arc;

use allstop_agent::{Agent, AgentBuilder};
use allstop_core::Message;
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Reply, ScriptedModel};
use futures::future::BoxFuture;

use crate::explore::RunStage;

/// Answers to messages: replies, one a step, to a message in which these words occur.
pub(super) type Lines = Vec<(&'static str, Vec<Reply>)>;

/// Answers by the newest words.
#[derive(Debug)]
pub(super) struct TalkModel {
    lines: Vec<(&'static str, ScriptedModel)>,
    otherwise: ScriptedModel,
}

impl TalkModel {
    pub(super) fn saying(lines: Lines) -> Arc<dyn Model> {
        let lines = lines.into_iter();
        let lines = lines.map(|(words, replies)| (words, ScriptedModel::new(replies)));
        let otherwise = Reply::text("As you").and_text(" say.").usage(3, 2);
        Arc::new(Self {
            lines: lines.collect(),
            // A message that is handed to a turn under way is answered in one of its later steps.
            otherwise: ScriptedModel::in_order_of_calls(vec![otherwise; OTHERWISE_MAX]),
        })
    }
}

/// An agent that answers in a session.
pub(super) fn answerer(stage: &RunStage, lines: Lines) -> AgentBuilder {
    Agent::builder(stage.watch_model(TalkModel::saying(lines)))
}

/// More answers than any run has turns.
const OTHERWISE_MAX: usize = 64;

impl Model for TalkModel {
    fn name(&self) -> &'static str {
        "talk"
    }

    fn stream(&self, mut request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let newest = request
            .messages
            .iter()
            .rposition(|message| matches!(&**message, Message::User { .. } | Message::Note { .. }));
        let newest = newest.unwrap_or_default();
        let words = match request.messages.get(newest).map(AsRef::as_ref) {
            Some(Message::User { text } | Message::Note { text }) => Arc::clone(text),
            _ => "".into(),
        };
        request.messages.drain(..newest);
        let line = self.lines.iter().find(|(line, _)| words.contains(line));
        line.map_or(&self.otherwise, |(_, model)| model)
            .stream(request)
    }
}
