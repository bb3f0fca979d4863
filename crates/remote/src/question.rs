//! A permission question, as shown by the session's own terminal or by a watcher. A watcher is a program in another
//! terminal that shows the session.

use std::fmt::Write as _;
use std::sync::Arc;

use allstop_core::CallId;
use allstop_core::ids::QuestionId;
use allstop_session::{OpenQuestion, Session};
use allstop_tools::EffectPreview;
use serde::{Deserialize, Serialize};

/// A permission question to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownQuestion {
    /// Id of the question.
    pub id: QuestionId,
    /// The call that needs permission.
    pub call_id: CallId,
    /// The call in one line.
    pub text: String,
    /// The beginning of `text`, as the title of a display of several lines.
    pub subject: String,
    /// The lines below that title, escaped: the whole command, or the other arguments.
    pub argument_lines: Vec<String>,
    /// The value of the call's argument `path`, if it has one.
    pub path: Option<String>,
    /// The change that the call would make.
    pub preview: Option<Arc<EffectPreview>>,
    /// Describes the calls that the answer `always` would allow.
    pub always: String,
    /// Describes the sub-agent that asks; `None` if the agent of the session asks.
    pub asker: Option<String>,
}

impl ShownQuestion {
    /// An open question of a session. `label` returns the label of a call of this conversation.
    pub fn of(
        open: OpenQuestion,
        session: &Session,
        label: impl FnOnce(&CallId) -> Option<String>,
    ) -> Self {
        let asker = describe_asker(&open.agents, session, label);
        let question = open.question;
        let path = question.arguments.get("path");
        Self {
            id: open.id,
            path: path.and_then(|path| path.as_str()).map(str::to_owned),
            argument_lines: question.argument_lines(),
            call_id: question.call_id,
            text: question.text,
            subject: question.subject,
            preview: question.preview,
            always: question.session_scope,
            asker,
        }
    }
}

/// Describes the sub-agent that asks, by the chain of calls that started this sub-agent. The first call of the chain
/// belongs to this conversation, and may have moved to the background in the meantime.
fn describe_asker(
    agents: &[CallId],
    session: &Session,
    label: impl FnOnce(&CallId) -> Option<String>,
) -> Option<String> {
    let (first, below) = agents.split_first()?;
    let works = session.background();
    let mut asker = if let Some(work) = works.iter().find(|work| work.call_id == *first) {
        format!("agent {}: {}", work.id, work.name)
    } else {
        let label = label(first);
        format!("{} ({first})", label.as_deref().unwrap_or("agent"))
    };
    for call in below {
        // Writing to a string cannot fail.
        let _ = write!(asker, " › agent {call}");
    }
    Some(asker)
}
