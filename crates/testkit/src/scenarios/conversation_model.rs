//! A model for sessions. Each answer depends only on the newest user text, so earlier stops do not change the answer.

use std::sync::Arc;

use allstop_agent::{Agent, AgentBuilder};
use allstop_core::Message;
use allstop_model::{Model, ModelError, ModelRequest, ModelStream, Reply, ScriptedModel};
use futures::future::BoxFuture;

use crate::explore::RunStage;

/// Table of replies: if the message contains this text, the model gives these replies, one for each step.
pub(super) type ReplyTable = Vec<(&'static str, Vec<Reply>)>;

/// Answers according to the newest user text.
#[derive(Debug)]
pub(super) struct ConversationModel {
    lines: Vec<(&'static str, ScriptedModel)>,
    otherwise: ScriptedModel,
}

impl ConversationModel {
    pub(super) fn shared(lines: ReplyTable) -> Arc<dyn Model> {
        let lines = lines.into_iter();
        let lines = lines.map(|(words, replies)| (words, ScriptedModel::new(replies)));
        let otherwise = Reply::text("As you").and_text(" say.").usage(3, 2);
        Arc::new(Self {
            lines: lines.collect(),
            // A message that is added to a running turn gets its answer in one of the later steps of this turn.
            otherwise: ScriptedModel::in_order_of_calls(vec![otherwise; OTHERWISE_MAX]),
        })
    }
}

/// An agent for a session, whose model answers from this table.
pub(super) fn answerer(stage: &RunStage, lines: ReplyTable) -> AgentBuilder {
    Agent::new(stage.watch_model(ConversationModel::shared(lines)))
}

/// Number of answers: larger than the number of turns of any run.
const OTHERWISE_MAX: usize = 64;

impl Model for ConversationModel {
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
            Some(Message::User { text, .. } | Message::Note { text }) => Arc::clone(text),
            _ => "".into(),
        };
        request.messages.drain(..newest);
        let line = self.lines.iter().find(|(line, _)| words.contains(line));
        line.map_or(&self.otherwise, |(_, model)| model)
            .stream(request)
    }
}
