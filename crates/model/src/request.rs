//! What a model is asked.

use std::sync::Arc;

use allstop_core::Message;
use serde_json::Value;

use crate::probe::ConnectionProbe;

/// One call. Everything is shared, so that a step clones pointers only.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The system prompt, if any.
    pub system: Option<Arc<str>>,
    /// The conversation. It has exactly one result for each tool call: the engine guarantees it.
    pub messages: Vec<Arc<Message>>,
    /// The tools.
    pub tools: Arc<[ToolDeclaration]>,
    /// At most so many tokens of answer.
    pub max_output_tokens: Option<u64>,
    /// Where the model registers the connections of this call. Keep a clone; ask it after a stop.
    pub probe: ConnectionProbe,
}

impl ModelRequest {
    /// A request with a conversation and nothing else.
    pub fn new(messages: Vec<Arc<Message>>) -> Self {
        Self {
            system: None,
            messages,
            tools: Arc::new([]),
            max_output_tokens: None,
            probe: ConnectionProbe::default(),
        }
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDeclaration {
    /// Its name.
    pub name: Arc<str>,
    /// What it does, for the model.
    pub description: Arc<str>,
    /// The JSON schema of its arguments.
    pub input_schema: Arc<Value>,
}
