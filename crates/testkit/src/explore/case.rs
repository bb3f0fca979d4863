//! One run of a scenario, stopped at one point in one way, or undisturbed.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use allstop_agent::{EventSink, History, RunOutcome};
use allstop_core::record::SessionRecord;
use allstop_core::{Cause, CauseKind, Extent, SessionId, StopReason, Timestamp};
use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, SessionStream, Version};
use allstop_scope::{Deadline, Scope, ScopeOptions, StopOrder};
use tokio::time::{Instant, sleep};

use super::NEXT_MESSAGE;
use super::aftermath::Aftermath;
use super::clockwork::{self, OWN_TASKS, Tick};
use super::live::{Ended, Live};
use super::point::{Moment, POLL, Point};
use super::scenario::Scenario;
use super::stage::{Stage, scopes};
use super::subject::{Play, Subject};
use super::way::Way;

/// How long a run may take on the paused clock. Nothing that ends takes as long, so whatever does will never end.
const HANGS_AFTER: Duration = Duration::from_hours(12);

/// How many polls a run may take. The longest takes a few thousand; one that comes here spins.
const POLLS_MAX: usize = 200_000;

/// How long what was stopped may take to leave no task behind, on the paused clock: longer than any grace.
const LEAVES_WITHIN: Duration = Duration::from_secs(30);

/// One run of a scenario.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) log: Arc<dyn Log>,
    /// Where and how it is stopped.
    pub(crate) stop: Option<(&'a Point, Way)>,
}

/// Plays a case. `None`: there was nothing at that point that could be stopped in that way.
pub(crate) fn play(case: &Case<'_>) -> Option<Aftermath> {
    clockwork::run(|tick| Box::pin(run(case, tick)))
}

async fn run(case: &Case<'_>, tick: Tick) -> Option<Aftermath> {
    let stage = Stage::new();
    let setup = case.scenario.build(&stage);
    let settings = setup.subject.settings().clone();
    let log = stage.log(Arc::clone(&case.log));
    let session = SessionStream::create(
        Arc::clone(&log),
        session_id(),
        Timestamp::from_unix_ms(0),
        "/explored",
    )
    .await
    .expect("a new session");
    let live = Live::new(&stage);
    if let Some((point, way)) = case.stop {
        live.plan(stage.points(), point, way);
    }
    let deadline = match case.stop {
        Some((point, Way::Deadline)) => Some(point.at),
        _ => None,
    };
    stage.points().open();
    stage.points().reach(Moment::Before, "run", "");
    let play = Play {
        scope: below(stage.session(), &stage, deadline),
        session,
        prompts: setup.prompts.clone(),
        events: observer(&stage),
        background: Some(Arc::clone(stage.background())),
    };
    live.started(setup.subject.start(play));
    stage.points().reach(Moment::After, "start", "");
    let Ended {
        outcome,
        over,
        over_at,
        hung,
    } = watch(&live, &stage, &log, &tick).await;
    let applied = live.applied();
    stage.points().close();
    let reserved_tokens = settings
        .budget
        .as_ref()
        .map_or(0, |budget| budget.reserved_tokens());
    let records = read_all(&*case.log).await;
    let (turns, history) = match outcome {
        Some(RunOutcome { turns, history }) => (Some(turns), Some(history)),
        None => (None, None),
    };
    let mut aftermath = Aftermath {
        points: stage.points().reached(),
        settings,
        asked: live.asked(),
        caller_gone: live.caller_gone(),
        deadline,
        turns,
        over,
        over_at,
        hung,
        records,
        state: history.as_ref().and_then(|history| match history {
            History::Logged(session) => Some(session.state().clone()),
            History::Bare { .. } => None,
        }),
        lived: Vec::new(),
        events: stage.world().events(),
        requests: Vec::new(),
        delivered: stage.world().delivered(),
        reserved_tokens,
        next: None,
        next_must: setup.next_ends,
        records_after_next: Vec::new(),
        tasks_left: 0,
        work_left: Vec::new(),
    };
    if !hung {
        // Whoever has lost the lease has no session any more: its successor begins with what is in the log.
        let lease_lost = matches!(case.stop, Some((_, Way::Stop(_, CauseKind::LeaseLost))));
        let session = match history {
            Some(History::Logged(session)) if !lease_lost => Some(*session),
            history => {
                drop(history);
                SessionStream::resume(log, session_id(), Timestamp::from_unix_ms(0))
                    .await
                    .ok()
            }
        };
        if let Some(session) = session {
            aftermath.next = next(&*setup.subject, session).await;
        }
        aftermath.records_after_next = read_all(&*case.log).await;
    }
    aftermath.lived = stage.world().lived();
    aftermath.requests = stage.world().requests();
    let root = stage.root().clone();
    drop((setup, live, stage));
    (aftermath.tasks_left, aftermath.work_left) = leave(root).await;
    applied.then_some(aftermath)
}

/// Sends the next message to the session that a store holds.
pub(crate) fn play_next(scenario: &Scenario, log: &Arc<dyn Log>) -> Option<StopReason> {
    clockwork::run(|_| async {
        let stage = Stage::new();
        let setup = scenario.build(&stage);
        let session =
            SessionStream::resume(Arc::clone(log), session_id(), Timestamp::from_unix_ms(2));
        next(&*setup.subject, session.await.ok()?).await
    })
}

pub(crate) fn session_id() -> SessionId {
    "explored".into()
}

/// The scope of the run: with a deadline, if that is the way to stop it.
fn below(session: &Scope, stage: &Stage, deadline: Option<Duration>) -> Scope {
    use allstop_tools::BackgroundHost as _;
    let Some(after) = deadline else {
        return session.clone();
    };
    let deadline = Deadline {
        at: Instant::now() + after,
        detail: "explored".into(),
        extent: Extent::Turn,
        bystanders: vec![stage.background().scope()],
    };
    let options = ScopeOptions {
        deadline: Some(deadline),
        ..ScopeOptions::default()
    };
    session
        .child("session/explored/deadline", options)
        .unwrap_or_else(|_| session.clone())
}

fn observer(stage: &Stage) -> EventSink {
    let (points, world) = (stage.points().clone(), stage.world().clone());
    EventSink::observer(move |event| {
        world.note_event(event.clone());
        points.reach(Moment::After, "event", event_name(event));
    })
}

/// Looks after each poll of any task, until the run is over and every stop is answered.
async fn watch(live: &Arc<Live>, stage: &Stage, log: &Arc<dyn Log>, tick: &Tick) -> Ended {
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    let mut polls = 0;
    let mut ended: Option<(Option<RunOutcome>, u64, Duration)> = None;
    let hung = std::future::poll_fn(|cx: &mut Context<'_>| {
        if tick.is_one() {
            polls += 1;
            stage.points().reach(Moment::Inside, POLL, "");
        }
        live.poll_answers(cx, stage);
        if ended.is_none() {
            let over = match live.poll_outcome(cx) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending if live.caller_gone().is_some() && is_free(&**log, cx) => Some(None),
                Poll::Pending => None,
            };
            if let Some(outcome) = over {
                ended = Some((outcome, stage.world().now(), stage.points().elapsed()));
                live.is_over();
                // A stop can come after the end too.
                stage.points().reach(Moment::After, "run", "");
            }
        }
        live.poll_answers(cx, stage);
        if ended.is_some() && live.all_answered() {
            return Poll::Ready(false);
        }
        if polls > POLLS_MAX {
            return Poll::Ready(true);
        }
        hangs.as_mut().poll(cx).map(|()| true)
    })
    .await;
    let (outcome, over, over_at) = ended.unwrap_or_else(|| {
        let now = stage.world().now();
        (None, now, stage.points().elapsed())
    });
    Ended {
        outcome,
        over,
        over_at,
        hung,
    }
}

/// Whether nobody holds the session any more: an engine whose caller has gone lets go of it when it has ended.
fn is_free(log: &dyn Log, cx: &mut Context<'_>) -> bool {
    let mut owner = log.lock_owner(&stream_of(&session_id()));
    matches!(
        std::pin::Pin::new(&mut owner).poll(cx),
        Poll::Ready(Ok(None))
    )
}

/// Sends the next message to what is left.
async fn next(subject: &dyn Subject, session: SessionStream) -> Option<StopReason> {
    let (_root, scope) = scopes();
    let mut running = subject.start(Play {
        scope,
        session,
        prompts: vec![NEXT_MESSAGE.into()],
        events: EventSink::none(),
        background: None,
    });
    let mut hangs = Box::pin(sleep(HANGS_AFTER));
    std::future::poll_fn(|cx| {
        if hangs.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        running.poll_outcome(cx).map(|outcome| {
            let turn = outcome.ok()?.turns.pop()?;
            Some(turn.stop_reason)
        })
    })
    .await
}

/// Stops whatever is there, and says what does not leave.
async fn leave(root: Scope) -> (usize, Vec<String>) {
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    drop(root.stop(order).receipt().await);
    let work_left = root
        .running()
        .iter()
        .map(|item| format!("{} {}", item.kind.as_str(), item.name))
        .collect();
    drop(root);
    let began = Instant::now();
    let metrics = tokio::runtime::Handle::current().metrics();
    while metrics.num_alive_tasks() > OWN_TASKS && began.elapsed() < LEAVES_WITHIN {
        sleep(Duration::from_millis(100)).await;
    }
    (metrics.num_alive_tasks() - OWN_TASKS, work_left)
}

/// Every record of the session.
pub(crate) async fn read_all(log: &dyn Log) -> Vec<SessionRecord> {
    let mut records = Vec::new();
    loop {
        let from = Version(records.len() as u64 + 1);
        let read = log
            .read(&stream_of(&session_id()), from, usize::MAX)
            .await
            .expect("the log can be read");
        if read.is_empty() {
            return records;
        }
        records.extend(read.iter().map(|(_, bytes)| {
            decode(bytes)
                .expect("a record can be read")
                .expect("and is of a known type")
        }));
    }
}

fn event_name(event: &allstop_agent::AgentEvent) -> &'static str {
    use allstop_agent::AgentEvent as E;
    match event {
        E::TurnStarted { .. } => "turn_started",
        E::StepStarted { .. } => "step_started",
        E::TextDelta { .. } => "text_delta",
        E::ReasoningDelta { .. } => "reasoning_delta",
        E::StepAnswered { .. } => "step_answered",
        E::RetryScheduled { .. } => "retry_scheduled",
        E::ToolRequested { .. } => "tool_requested",
        E::PermissionAsked { .. } => "permission_asked",
        E::PermissionAnswered { .. } => "permission_answered",
        E::ToolStarted { .. } => "tool_started",
        E::ToolFinished { .. } => "tool_finished",
        E::BackgroundStarted { .. } => "background_started",
        E::StopHeard { .. } => "stop_heard",
        E::TurnEnded { .. } => "turn_ended",
    }
}
