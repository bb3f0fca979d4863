//! Another chat in the same process, after `/clear`, `/model NAME` or `/resume`. The present chat ends as with `/quit`,
//! and the next one begins as from the command line. So both have one way to begin and one way to end.

use allstop_core::SessionId;
use allstop_terminal::InputReader;

use crate::args::ChatArgs;
use crate::exit::Exit;

/// Chat that follows the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NextChat {
    /// A new session.
    New,
    /// The same session with another model.
    Model {
        /// Name of the model.
        name: String,
        /// Server of the present model. A model without a provider in its name stays on this server.
        base_url: Option<String>,
    },
    /// Another session; `None` if the user selects it from a list.
    Session(Option<String>),
}

/// End of a chat.
#[derive(Debug)]
pub(super) enum ChatEnd {
    /// The user has left.
    Left(Exit),
    /// The user goes on in another chat. The id is the session of the chat that has ended, and the reader holds the keys
    /// that were typed since.
    Next(NextChat, SessionId, Box<InputReader>),
    /// The chat has shown why it cannot begin.
    NotOpened {
        exit: Exit,
        /// True if a signal ends the process.
        was_stopped: bool,
    },
}

impl NextChat {
    /// The command line of the next chat.
    pub(super) fn args(&self, mut args: ChatArgs, session: &SessionId) -> ChatArgs {
        args.prompt.clear();
        args.session.continues = false;
        (args.session.session, args.resume) = match self {
            Self::New => (None, false),
            Self::Model { .. } => (Some(session.to_string()), false),
            Self::Session(name) => (name.clone(), name.is_none()),
        };
        if let Self::Model { name, base_url } = self {
            args.with.model.model = Some(name.clone());
            let names_provider = name.contains("::") || name.starts_with("script:");
            args.with.model.base_url = base_url.clone().filter(|_| !names_provider);
        }
        args
    }

    /// True if the screen already shows the conversation of the session.
    pub(super) fn is_shown(&self) -> bool {
        matches!(self, Self::Model { .. })
    }
}
