//! Wording for the model about calls that have no result.

use std::sync::Arc;

/// Texts for the model in place of a result. A program that replaces another runtime keeps the words of that runtime,
/// because its prompts may refer to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTexts {
    /// A person denied the call. The person's reason follows.
    pub denied: Arc<str>,
    /// No person could be asked.
    pub unanswered: Arc<str>,
    /// A stop ended the call, or came before the call. If work of the call may continue, a sentence about it follows.
    pub stopped: Arc<str>,
}
