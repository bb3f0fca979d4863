//! The sloppy engine: the engine of an agent in a few hundred lines, written by hand. The sloppy engine uses the parts
//! (models, tools) that Allstop's own engine uses. Without a bug this engine keeps every promise. With a [`Bug`] this
//! engine breaks the promise of this bug, at the place where a programmer would make this mistake. To find these
//! places, search for `self.has(Bug::…)`.

mod ending;
mod journal;
mod model;
mod running;
mod tools;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_agent::{EventSink, RunOutcome, SessionBackground, Settings};
use allstop_core::StopReason;
use allstop_core::turn::Reservation;
use allstop_model::Model;
use allstop_scope::{NotStarted, Scope, ScopeOptions};
use allstop_testkit::explore::{RunningSubject, Subject, SubjectPlay};
use allstop_tools::{BackgroundHost as _, ToolRegistry};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bug::Bug;
use journal::Journal;
use running::Started;

/// The engine.
pub(crate) struct Engine {
    parts: Arc<Parts>,
}

struct Parts {
    model: Arc<dyn Model>,
    tools: ToolRegistry,
    settings: Settings,
    bug: Option<Bug>,
    /// Reservations that [`Bug::KeptReservation`] never releases.
    forgotten: Mutex<Vec<Reservation>>,
    /// Flag that [`Bug::BusyForEver`] never resets.
    busy: AtomicBool,
}

/// One run.
struct Cx {
    parts: Arc<Parts>,
    /// Scope in which the run was started.
    session: Scope,
    /// The scope of the run itself; an error if a stop came before the scope was created.
    run: Result<Scope, NotStarted>,
    background: Option<Arc<SessionBackground>>,
    events: EventSink,
}

impl Cx {
    fn has(&self, bug: Bug) -> bool {
        self.parts.bug == Some(bug)
    }

    fn bystanders(&self) -> Vec<Scope> {
        let background = self.background.iter();
        background.map(|background| background.scope()).collect()
    }
}

impl Engine {
    pub(crate) fn new(
        model: Arc<dyn Model>,
        tools: ToolRegistry,
        settings: Settings,
        bug: Option<Bug>,
    ) -> Self {
        Self {
            parts: Arc::new(Parts {
                model,
                tools,
                settings,
                bug,
                forgotten: Mutex::default(),
                busy: AtomicBool::new(false),
            }),
        }
    }
}

impl Subject for Engine {
    fn start(&self, play: SubjectPlay) -> Box<dyn RunningSubject> {
        let run = play
            .scope
            .child("session/explored/run", ScopeOptions::default());
        let scope = run.clone().unwrap_or_else(|_| play.scope.clone());
        let cx = Cx {
            parts: Arc::clone(&self.parts),
            session: play.scope.clone(),
            run,
            background: play.background,
            events: play.events,
        };
        let over = Arc::new(Notify::new());
        let running = drive(
            cx,
            Journal::new(play.session),
            play.prompts,
            Arc::clone(&over),
        );
        let engine = play.scope.spawn_engine(running);
        Box::new(Started::new(scope, engine, over, self.parts.bug))
    }

    fn settings(&self) -> &Settings {
        &self.parts.settings
    }
}

/// Runs turns one after another, until one of them does not complete.
async fn drive(
    cx: Cx,
    mut journal: Journal,
    prompts: Vec<Arc<str>>,
    over: Arc<Notify>,
) -> RunOutcome {
    let mut turns = Vec::new();
    if cx.has(Bug::BusyForEver) && cx.parts.busy.swap(true, Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    journal.settle().await;
    for input in prompts {
        let outcome = turn::run(&cx, &mut journal, input).await;
        let completed = outcome.stop_reason == StopReason::Completed;
        turns.push(outcome);
        if !completed {
            break;
        }
        cx.parts.busy.store(false, Ordering::Relaxed);
    }
    if let Ok(scope) = &cx.run {
        scope.close();
    }
    over.notify_waiters();
    RunOutcome {
        turns,
        history: journal.into_history(),
    }
}
