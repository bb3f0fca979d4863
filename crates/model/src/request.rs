//! Requests to a model.

use std::sync::Arc;

use allstop_core::{Message, SessionId};
use serde_json::Value;

use crate::probe::ConnectionProbe;
use crate::request_headers::RequestHeaders;
use crate::request_settings::RequestSettings;

/// A request to a model. All parts are shared, so that a clone copies only pointers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelRequest {
    /// System prompt, if any.
    pub system: Option<Arc<str>>,
    /// The conversation. The turn engine, which builds the conversation, guarantees that each tool call has exactly one
    /// result.
    pub messages: Vec<Arc<Message>>,
    /// The tools.
    pub tools: Arc<[ToolDeclaration]>,
    /// Maximum tokens of the answer.
    pub max_output_tokens: Option<u64>,
    /// Schema of the answer; `None` for any text.
    pub output_schema: Option<OutputSchema>,
    /// Sampling, reasoning, the choice of tools, and other settings.
    pub settings: Arc<RequestSettings>,
    /// Session that sends the request. A sub-agent has a separate id, which begins with the id of the agent that started it.
    pub session: Option<SessionId>,
    /// Further headers of the request.
    pub headers: RequestHeaders,
    /// Probe for the connections of this call. Keep a clone, and ask it after a stop.
    pub probe: ConnectionProbe,
}

impl ModelRequest {
    /// A request that contains only a conversation.
    pub fn new(messages: Vec<Arc<Message>>) -> Self {
        Self {
            system: None,
            messages,
            tools: Arc::new([]),
            max_output_tokens: None,
            output_schema: None,
            settings: Arc::default(),
            session: None,
            headers: RequestHeaders::default(),
            probe: ConnectionProbe::default(),
        }
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, system: impl Into<Option<Arc<str>>>) -> Self {
        self.system = system.into();
        self
    }

    /// Sets the tools.
    #[must_use]
    pub fn tools(mut self, tools: Arc<[ToolDeclaration]>) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the maximum tokens of the answer.
    #[must_use]
    pub fn max_output_tokens(mut self, max_output_tokens: impl Into<Option<u64>>) -> Self {
        self.max_output_tokens = max_output_tokens.into();
        self
    }

    /// Sets the schema of the answer.
    #[must_use]
    pub fn output_schema(mut self, output_schema: impl Into<Option<OutputSchema>>) -> Self {
        self.output_schema = output_schema.into();
        self
    }

    /// Sets sampling, reasoning, the choice of tools, and other settings.
    #[must_use]
    pub fn settings(mut self, settings: Arc<RequestSettings>) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the session that sends the request.
    #[must_use]
    pub fn session(mut self, session: impl Into<Option<SessionId>>) -> Self {
        self.session = session.into();
        self
    }

    /// Sets further headers of the request.
    #[must_use]
    pub fn headers(mut self, headers: RequestHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the probe for the connections of this call.
    #[must_use]
    pub fn probe(mut self, probe: ConnectionProbe) -> Self {
        self.probe = probe;
        self
    }
}

impl ModelRequest {
    /// Text of the user's last message; empty if there is none.
    pub fn user_text(&self) -> &str {
        let mut newest_first = self.messages.iter().rev();
        let text = newest_first.find_map(|message| match &**message {
            Message::User { text, .. } => Some(&**text),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// Number of tool results since the user's last message. A model that is a function decides by this number if it
    /// calls a tool or answers.
    pub fn tool_results(&self) -> usize {
        let newest_first = self.messages.iter().rev();
        let of_turn =
            newest_first.take_while(|message| !matches!(***message, Message::User { .. }));
        of_turn
            .filter(|message| matches!(***message, Message::Tool(_)))
            .count()
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDeclaration {
    /// Name of the tool.
    pub name: Arc<str>,
    /// Description for the model.
    pub description: Arc<str>,
    /// JSON schema of the arguments.
    pub input_schema: Arc<Value>,
}

/// JSON schema of an answer. Providers that support schemas constrain the answer to the schema. The other providers get
/// the schema as part of the system prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema {
    /// Name of the answer for the provider: letters, digits, `_` and `-`.
    pub name: Arc<str>,
    /// The schema.
    pub schema: Arc<Value>,
}

impl OutputSchema {
    /// Name of an answer whose schema has no other name.
    pub const NAME_DEFAULT: &str = "answer";

    /// Creates the schema of an answer, with the default name.
    pub fn new(schema: impl Into<Arc<Value>>) -> Self {
        Self {
            name: Self::NAME_DEFAULT.into(),
            schema: schema.into(),
        }
    }
}
