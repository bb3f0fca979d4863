//! `allstop chat`: a conversation at the terminal.

mod command;
mod desk;
mod editor;
mod input;
mod keys;
mod past;

use crate::Exit;
use crate::args::{ChatArgs, ChatWith, ResumeArgs, StoreArgs};
use crate::host::Host;
use crate::problem::Problem;

/// What a chat begins with.
#[derive(Debug)]
pub(crate) struct ChatStart {
    prompt: Option<String>,
    session: Option<String>,
    store: StoreArgs,
    with: ChatWith,
}

impl From<ChatArgs> for ChatStart {
    fn from(args: ChatArgs) -> Self {
        Self {
            prompt: args.prompt,
            session: args.session,
            store: args.store,
            with: args.with,
        }
    }
}

impl ChatStart {
    /// A chat on a session that is there.
    pub(crate) fn resumed(args: ResumeArgs, store: StoreArgs) -> Self {
        Self {
            prompt: args.prompt,
            session: Some(args.id),
            store,
            with: args.with,
        }
    }
}

/// Runs the command.
pub(crate) async fn chat(_start: ChatStart, _host: &Host) -> Result<Exit, Problem> {
    Err(Problem::failure("not yet"))
}
