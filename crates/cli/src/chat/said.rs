//! A text that a command of the chat prints.

/// A text of the chat, and below it a text from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Text of the chat itself.
    pub(super) own: String,
    /// Text from outside, such as the output of a program. It is shown without the mark of Allstop's own rows.
    pub(super) outside: String,
}

impl From<String> for Said {
    fn from(own: String) -> Self {
        Self {
            own,
            outside: String::new(),
        }
    }
}
