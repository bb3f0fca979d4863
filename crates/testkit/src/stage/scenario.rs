//! A scenario builds the subject of an exploration (an agent or a session) again for each run.

use std::fmt;
use std::sync::Arc;

use allstop_core::StopReason;
use allstop_core::record::SessionRecord;
use allstop_session::SessionOptions;

use super::RunStage;
use super::session_play::SessionPlay;
use super::subject::Subject;

/// Builder of the subject of an exploration, called for each run.
#[derive(Clone)]
pub struct Scenario {
    name: Arc<str>,
    build: Arc<dyn Fn(&RunStage) -> Setup + Send + Sync>,
}

impl Scenario {
    /// A scenario with this name. `build` is called once for each run, and must build the same subject every time.
    pub fn new(
        name: impl Into<Arc<str>>,
        build: impl Fn(&RunStage) -> Setup + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            build: Arc::new(build),
        }
    }

    /// Name of the scenario.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn build(&self, stage: &RunStage) -> Setup {
        (self.build)(stage)
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Kinds of subjects.
pub(crate) enum Played {
    /// One run of turns.
    Run {
        subject: Box<dyn Subject>,
        prompts: Vec<Arc<str>>,
    },
    /// A session.
    Session(SessionPlay),
}

/// Subject of an exploration, with its input.
#[must_use = "a scenario returns it"]
pub struct Setup {
    pub(crate) play: Played,
    pub(crate) next_ends: Option<StopReason>,
}

impl Setup {
    /// A subject and one message. For an agent, use [`RunStage::agent`] instead.
    pub fn new(subject: impl Subject + 'static, prompt: &str) -> Self {
        Self {
            play: Played::Run {
                subject: Box::new(subject),
                prompts: vec![prompt.into()],
            },
            next_ends: Some(StopReason::Completed),
        }
    }

    pub(crate) fn of_session(play: SessionPlay) -> Self {
        Self {
            play: Played::Session(play),
            next_ends: Some(StopReason::Completed),
        }
    }

    /// Changes the options of the session. The explorer then sets the clock and the ids of the session itself.
    ///
    /// # Panics
    /// Panics if the subject is not a session.
    pub fn options(mut self, change: impl FnOnce(&mut SessionOptions)) -> Self {
        let Played::Session(play) = &mut self.play else {
            panic!("only a session has these options");
        };
        change(&mut play.options);
        self
    }

    /// Sets records that are in the log before the session is opened, as if an earlier process had left them.
    ///
    /// # Panics
    /// Panics if the subject is not a session.
    pub fn earlier_records(mut self, records: Vec<SessionRecord>) -> Self {
        let Played::Session(play) = &mut self.play else {
            panic!("only a session is resumed");
        };
        play.earlier_records = records;
        self
    }

    /// Adds another message to the run. The message gets a separate turn.
    pub fn and_prompt(mut self, prompt: &str) -> Self {
        if let Played::Run { prompts, .. } = &mut self.play {
            prompts.push(prompt.into());
        }
        self
    }

    /// Allows any ending of the next message, because the session has reached a limit.
    pub fn next_may_be_refused(mut self) -> Self {
        self.next_ends = None;
        self
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").finish_non_exhaustive()
    }
}
