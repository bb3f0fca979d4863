//! One life: a process with all sessions in it, from its start to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{Agent, TurnError};
use allstop_core::record::SessionRecord;
use allstop_core::{Cause, CauseKind, Extent};

use allstop_log::session::{decode, stream_of};
use allstop_log::{Log, MemoryLog, Version, remove_session};
use allstop_model::Model;
use allstop_scope::{RootOptions, Scope, StopOrder};
use allstop_session::{
    AgentRequest, AgentSource, Compaction, OnBackgroundEnd, Sent, Session, SessionAgent,
    SessionEventKind, SessionOptions, Sessions, Subscription,
};
use allstop_tools::{OutputFolder, PermissionPolicy, ShellConfig, ShellTool, Tool, ToolRegistry};
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::State;
use super::checks::Kept;
use super::model::SoakModel;
use crate::check::background;
use crate::explore::{Points, Watch, WatchedLog, World};
use crate::{Behaviour, SimulatedSystem, ToolFn};

/// How much is done in one life.
const ACTIONS_A_LIFE: u64 = 300;

/// A session that has had so many messages is checked, removed, and followed by another.
const MESSAGES_A_SESSION: u64 = 24;

/// Longer than anything takes that is being stopped.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A session in a life.
pub(super) struct Opened {
    pub(super) session: Session,
    /// Messages whose outcome is not known, and how often the clock had jumped when they were sent.
    pub(super) sent: Vec<(u64, Sent)>,
    /// Reads now and then, and must miss nothing durable.
    reader: Subscription,
    read: Version,
    /// Never reads.
    _stalled: Subscription,
}

/// Lives. Whether it ended by a crash.
pub(super) async fn live(state: &mut State) -> bool {
    let began = Instant::now();
    let root = Scope::root("process", RootOptions::current());
    let sessions = sessions(state, &root);
    let mut opened = VecDeque::new();
    for kept in 0..state.sessions.len() {
        match open(state, &sessions, kept).await {
            Ok(session) => opened.push_back(session),
            Err(wrong) => {
                state.broken(format!("a session does not open: {wrong}"));
                return false;
            }
        }
    }
    let mut opened: Vec<Opened> = opened.into();
    let actions = 1 + state.random.below(ACTIONS_A_LIFE);
    for _ in 0..actions {
        let number = state.random.below(opened.len() as u64) as usize;
        let Some(session) = opened.get_mut(number) else {
            continue;
        };
        state.report.actions += 1;
        state.act(number, session).await;
        look(state, number, session);
        if !state.report.violations.is_empty() {
            return false;
        }
    }
    state.report.simulated += began.elapsed();
    if state.random.below(3) == 0 {
        return true;
    }
    end(state, opened, &sessions, &root).await;
    false
}

fn sessions(state: &mut State, root: &Scope) -> Sessions {
    let system = SimulatedSystem::new();
    let make = Behaviour {
        prints: vec![(Duration::from_secs(1), "compiling\n".to_owned())],
        exits: Some((Duration::from_mins(5), 0)),
        term_takes: Some(Duration::from_millis(300)),
        ..Behaviour::default()
    };
    system.program("make", make);
    system.program("npm run dev", Behaviour::server("listening\n"));
    let wakes = state.random.below(2) == 0;
    let options = SessionOptions {
        follow_up: allstop_session::FollowUp::Enqueue,
        on_background_end: if wakes {
            OnBackgroundEnd::Wake
        } else {
            OnBackgroundEnd::Note
        },
        waiting_max: 6,
        compaction: Some(Compaction {
            tokens_max: 250,
            turns_kept: 2,
        }),
        new_message_id: Arc::new(state.new_message_id()),
        ..SessionOptions::default()
    };
    // Slow, so that a crash can fall into an append.
    let log = WatchedLog {
        inner: Arc::clone(&state.log) as _,
        watch: Watch {
            points: Points::new(),
            world: World::default(),
        },
    };
    let source = Arc::new(Source { system });
    Sessions::new(Arc::new(log), root.clone(), source, options)
}

pub(super) async fn open(
    state: &mut State,
    sessions: &Sessions,
    number: usize,
) -> Result<Opened, String> {
    let Some(kept) = state.sessions.get_mut(number) else {
        return Err("there is none".to_owned());
    };
    let id = kept.id.clone();
    let opening = async {
        if kept.is_made {
            sessions.resume(id).await
        } else {
            sessions.create(Some(id), "/soak").await
        }
    };
    let session = timeout(ENDS_WITHIN, opening)
        .await
        .map_err(|_| "it does not open".to_owned())?
        .map_err(|error| error.to_string())?;
    kept.is_made = true;
    Ok(Opened {
        reader: session.subscribe(Some(Version(1))),
        _stalled: session.subscribe(None),
        sent: Vec::new(),
        read: Version(0),
        session,
    })
}

/// Keeps the outcomes that are there, and reads on.
pub(super) fn look(state: &mut State, number: usize, opened: &mut Opened) {
    let mut wrong = Vec::new();
    if let Some(kept) = state.sessions.get_mut(number) {
        let jumps = state.report.jumps;
        opened.sent.retain(|(at, sent)| match sent.try_outcome() {
            None => true,
            Some(outcome) => {
                wrong.extend(kept.came_to(&sent.id, &outcome, *at != jumps).err());
                false
            }
        });
    }
    while let Some(event) = opened.reader.next().now_or_never() {
        match event {
            Ok(Some(event)) => {
                if let SessionEventKind::Recorded { version, .. } = event.kind {
                    if version != opened.read.next() {
                        wrong.push(format!(
                            "record {version:?} is given after {:?}",
                            opened.read
                        ));
                    }
                    opened.read = version;
                }
            }
            _ => break,
        }
    }
    for wrong in wrong {
        state.broken(wrong);
    }
}

/// Ends a life as it should: everything is closed, and everything was told.
async fn end(state: &mut State, opened: Vec<Opened>, sessions: &Sessions, root: &Scope) {
    for (number, mut session) in opened.into_iter().enumerate() {
        let closed = timeout(ENDS_WITHIN, session.session.close()).await;
        look(state, number, &mut session);
        let Ok(receipt) = closed else {
            state.broken(format!("{} does not close", session.session.id()));
            return;
        };
        if !receipt.quiet() {
            state.broken(format!(
                "{} is closed and not quiet: {receipt:?}",
                session.session.id()
            ));
        }
        if let Some((_, sent)) = session.sent.first() {
            state.broken(format!("{} came to nothing", sent.id));
        }
        drop(session);
        let long = |kept: &Kept| kept.messages >= MESSAGES_A_SESSION;
        if state.sessions.get(number).is_some_and(long) {
            retire(state, number, sessions).await;
        }
    }
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = root.stop(order).receipt().await;
    if !receipt.quiet() || !root.running().is_empty() {
        state.broken(format!("the process is not quiet: {receipt:?}"));
    }
    sleep(Duration::from_secs(1)).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    if tasks > 0 {
        state.broken(format!("{tasks} tasks are left"));
    }
}

/// Checks a session that is closed, removes it, and puts a new one in its place.
async fn retire(state: &mut State, number: usize, sessions: &Sessions) {
    let new = state.new_session();
    let Some(place) = state.sessions.get_mut(number) else {
        return;
    };
    let old = std::mem::replace(place, new);
    let log = Arc::clone(&state.log);
    let mut records = records_of(&log, &old).await;
    if background(&records).is_ok_and(|open| !open.is_empty()) {
        // Of a life that crashed. A session accounts for such work when it is first used, and nobody has used it since.
        match sessions.resume(old.id.clone()).await {
            Ok(session) => {
                let _too_short_or_not = session.compact().await;
                session.close().await;
            }
            Err(error) => state.broken(format!("{} is not resumed: {error}", old.id)),
        }
        records = records_of(&log, &old).await;
    }
    if let Err(wrong) = old.check(&records) {
        state.broken(format!("{}: {wrong}", old.id));
    }
    state.report.sessions += 1;
    state.report.records += records.len() as u64;
    state.report.messages_of_records += old.messages;
    if let Err(error) = remove_session(&*log, &old.id).await {
        state.broken(format!("{} is not removed: {error}", old.id));
    }
}

async fn records_of(log: &MemoryLog, session: &Kept) -> Vec<SessionRecord> {
    let read = log
        .read(&stream_of(&session.id), Version(1), usize::MAX)
        .await;
    let read = read.expect("memory can be read");
    let records = read.iter();
    records
        .filter_map(|(_, bytes)| decode(bytes).expect("a record can be read"))
        .collect()
}

#[derive(Debug)]
struct Source {
    system: SimulatedSystem,
}

impl AgentSource for Source {
    fn agent(&self, request: AgentRequest) -> Result<SessionAgent, TurnError> {
        let work = ToolFn::new("work", |call| async move {
            tokio::select! {
                biased;
                cause = call.scope.stopped_at("working") => format!("stopped: {cause}"),
                () = sleep(Duration::from_secs(7)) => "worked".to_owned(),
            }
        });
        let deaf = ToolFn::new("deaf", |_| async {
            sleep(Duration::from_secs(11)).await;
            "done".to_owned()
        });
        let nowhere = Arc::new(OutputFolder::new("/dev/null/output"));
        let config = ShellConfig {
            containment: self.system.containment(),
            ..ShellConfig::new("/", nowhere)
        };
        let shell = ShellTool::new(config, Arc::clone(&request.background) as _);
        let mut tools = ToolRegistry::new();
        let all: [Arc<dyn Tool>; 3] = [Arc::new(work), Arc::new(deaf), Arc::new(shell)];
        for tool in all {
            tools.register(tool).expect("their names differ");
        }
        let model: Arc<dyn Model> = Arc::new(SoakModel);
        let mut agent = Agent::builder(model).tools(tools);
        // Every fourth asks before it does anything.
        if request.session.as_str().ends_with(['3', '7']) {
            agent = agent.permissions(
                Arc::new(PermissionPolicy::default()),
                Arc::clone(&request.prompter),
            );
        }
        Ok(SessionAgent {
            agent: agent.build(),
            kept: None,
        })
    }
}
