//! Questions of MCP servers in the form that the SDKs' handlers read.

use allstop_core::ids::QuestionId;
use allstop_session::OpenServerQuestion;
use allstop_tools::WantedInput;
use serde_json::json;

use super::EventTranslator;

impl EventTranslator {
    pub(super) fn server_asked(&mut self, open: &OpenServerQuestion) {
        let question = &open.question;
        let mut data = json!({
            "requestId": open.id,
            "toolCallId": question.call_id,
            "elicitationSource": question.server,
            "message": question.message,
            "mode": "form",
        });
        if let Some(schema) = question.wanted.schema() {
            data["requestedSchema"] = schema;
        }
        if let WantedInput::Url(url) = &question.wanted {
            data["mode"] = "url".into();
            data["url"] = (&**url).into();
        }
        // The event is ephemeral, because the log contains no questions.
        self.ephemeral("elicitation.requested", data);
    }

    pub(super) fn server_question_closed(&mut self, id: &QuestionId) {
        self.ephemeral("elicitation.completed", json!({ "requestId": id }));
    }
}
