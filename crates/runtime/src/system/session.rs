//! A session that this process has open.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_agent::{Agent, Background, EventSink, History, Prompt, Run, RunRequest};
use allstop_core::SessionId;
use allstop_core::record::SessionRecord;
use allstop_scope::Scope;

use allstop_session::found::FoundWork;

/// A session that this process has open. Its history goes from run to run: a run takes it, and its outcome gives it
/// back.
#[derive(Debug)]
pub struct OpenSession {
    /// Its id.
    pub id: SessionId,
    /// The agent, with tools and permissions of this session alone.
    pub agent: Agent,
    /// Everything of the session runs below it.
    pub scope: Scope,
    /// Its background work.
    pub background: Arc<Background>,
    /// What recovery wrote: the endings of what a crash left open. Empty after a clean end.
    pub recovered: Vec<SessionRecord>,
    /// Background work of earlier processes that the log did not know the end of: what still runs, and what does not,
    /// which is recorded by now.
    pub found: Vec<FoundWork>,
    pub(super) spill: SpillFolder,
}

impl OpenSession {
    /// Starts a run: one turn a prompt, as long as each completes. Must be called in a tokio runtime.
    ///
    /// Dropping the [`Run`] stops it with cause `disconnect`.
    pub fn run(
        &self,
        history: History,
        prompts: impl IntoIterator<Item = impl Into<Arc<str>>>,
        events: EventSink,
    ) -> Run {
        let request = RunRequest {
            history,
            prompts: prompts
                .into_iter()
                .map(|prompt| Prompt::from(prompt.into()))
                .collect::<VecDeque<Prompt>>(),
            context: None,
            background: Some(Arc::clone(&self.background)),
            controls: Arc::default(),
            decision: None,
        };
        self.agent.start(&self.scope, request, events)
    }

    /// Where output goes that is too long for memory.
    pub fn spill_folder(&self) -> &Path {
        self.spill.path()
    }
}

/// The folder of a session's long output. Dropping it removes the folder if nothing is in it.
#[derive(Debug)]
pub(super) struct SpillFolder(PathBuf);

impl SpillFolder {
    /// Makes the folder. Without it long output is cut, and says so.
    pub(super) fn make(path: PathBuf) -> Self {
        if let Err(error) = super::open::make_folder(&path) {
            tracing::warn!(path = %path.display(), %error, "no folder for long output");
        }
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        // It holds output: then it stays, with it.
        drop(std::fs::remove_dir(&self.0));
    }
}
