//! State of the running turn of a session, collected from the session's events. A new watcher (a program that shows a
//! session of another process) receives this state as its first events, and `allstop ps` prints facts from it. No I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::AgentEvent;
use allstop_core::ids::BackgroundId;
use allstop_core::image::text_with_images;
use allstop_core::message::Arguments;
use allstop_core::record::SessionRecord;
use allstop_core::{CallId, Effect, TurnNumber, Usage, describe_call};
use allstop_tools::CallProgress;

use crate::watch_event::WatchEvent;

/// Maximum bytes of the unfinished answer. A longer answer is shown when it is complete.
const ANSWER_BYTES_MAX: usize = 256 * 1_024;

/// Maximum number of bytes that are kept from the end of a call's output. These bytes contain more lines than the
/// display of a call shows.
const OUTPUT_BYTES_MAX: usize = 4 * 1_024;

/// Maximum number of kept calls of a turn. The number is greater than the number of calls that a turn may run at a
/// time.
const CALLS_MAX: usize = 256;

/// Maximum number of remembered starts of background work. The number is greater than the number of pieces of
/// background work that can run at a time.
const BACKGROUND_MAX: usize = 256;

/// State of the running turn, if a turn runs.
#[derive(Debug, Default)]
pub(crate) struct TurnSnapshot {
    turn: Option<SnapshotTurn>,
    /// Background work whose start was observed, the newest last.
    background: VecDeque<(BackgroundId, Instant)>,
}

/// Facts of the running turn for `allstop ps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnFacts {
    pub(crate) turn: TurnNumber,
    pub(crate) age: Duration,
    /// Token usage of the model calls and sub-agents that have ended.
    pub(crate) usage: Usage,
}

#[derive(Debug)]
struct SnapshotTurn {
    number: TurnNumber,
    message: Option<Arc<str>>,
    since: Instant,
    started: Option<AgentEvent>,
    step: Option<(AgentEvent, Instant)>,
    /// The model's answer in the running step; `None` if the answer is complete, too long or has a gap.
    answer: Option<String>,
    calls: Vec<SnapshotCall>,
    usage: Usage,
}

#[derive(Debug)]
struct SnapshotCall {
    id: CallId,
    name: Arc<str>,
    arguments: Arguments,
    started: Option<(Effect, Instant)>,
    /// The end of the call's output.
    output: String,
    progress: Option<CallProgress>,
}

impl TurnSnapshot {
    /// Applies a record of the session.
    pub(crate) fn record(&mut self, record: &SessionRecord, now: Instant) {
        match record {
            SessionRecord::TurnStarted {
                turn,
                input,
                images,
                ..
            } => {
                let text = text_with_images(input, images.iter().copied());
                self.begin(*turn, now).message = Some(text.into());
            }
            SessionRecord::CallFinished { usage, .. } => {
                if let (Some(turn), Some(usage)) = (&mut self.turn, usage) {
                    turn.usage += *usage;
                }
            }
            SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. } => {
                self.turn = None;
            }
            _ => {}
        }
    }

    /// Applies a live event of the session.
    pub(crate) fn live(&mut self, event: &AgentEvent, now: Instant) {
        if let AgentEvent::TurnStarted { turn, .. } = event {
            self.begin(*turn, now).started = Some(event.clone());
            return;
        }
        if let AgentEvent::BackgroundStarted { id, .. } = event {
            if self.background.len() == BACKGROUND_MAX {
                self.background.pop_front();
            }
            self.background.push_back((id.clone(), now));
        }
        let Some(turn) = &mut self.turn else { return };
        match event {
            AgentEvent::StepStarted { .. } => {
                turn.step = Some((event.clone(), now));
                turn.answer = Some(String::new());
            }
            AgentEvent::TextDelta { text } => turn.text(text),
            AgentEvent::StepAnswered { .. } => {
                (turn.step, turn.answer) = (None, None);
            }
            AgentEvent::RetryScheduled { .. } => turn.answer = Some(String::new()),
            AgentEvent::ToolRequested {
                call_id,
                name,
                arguments,
            } => {
                turn.calls.retain(|call| call.id != *call_id);
                if turn.calls.len() < CALLS_MAX {
                    turn.calls.push(SnapshotCall {
                        id: call_id.clone(),
                        name: Arc::clone(name),
                        arguments: arguments.clone(),
                        started: None,
                        output: String::new(),
                        progress: None,
                    });
                }
            }
            AgentEvent::ToolStarted {
                call_id, effect, ..
            } => {
                if let Some(call) = turn.call(call_id) {
                    call.started = Some((*effect, now));
                }
            }
            AgentEvent::ToolOutput { call_id, text, .. } => {
                if let Some(call) = turn.call(call_id) {
                    call.push(text);
                }
            }
            AgentEvent::ToolProgress { call_id, progress } => {
                if let Some(call) = turn.call(call_id) {
                    call.progress = Some(progress.clone());
                }
            }
            AgentEvent::ToolFinished { call_id, .. } => {
                turn.calls.retain(|call| call.id != *call_id);
            }
            AgentEvent::TurnEnded { .. } => self.turn = None,
            _ => {}
        }
    }

    /// Drops the unfinished answer, because missed events left a gap in the answer.
    pub(crate) fn missed(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.answer = None;
        }
    }

    /// Label of a call that has not ended.
    pub(crate) fn label(&self, id: &CallId) -> Option<String> {
        let mut calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let call = calls.find(|call| call.id == *id)?;
        Some(describe_call(&call.name, &call.arguments))
    }

    pub(crate) fn facts(&self, now: Instant) -> Option<TurnFacts> {
        let turn = self.turn.as_ref()?;
        Some(TurnFacts {
            turn: turn.number,
            age: now.saturating_duration_since(turn.since),
            usage: turn.usage,
        })
    }

    /// Time since the start of a tool call, a step or background work; `None` if the start was not observed. `id` is
    /// the id of this work in the receipt of a stop.
    pub(crate) fn age(&self, id: &str, now: Instant) -> Option<Duration> {
        let turn = self.turn.as_ref();
        let mut calls = turn.into_iter().flat_map(|turn| &turn.calls);
        let call = calls.find(|call| call.id.as_str() == id);
        let call = call.and_then(|call| Some(call.started.as_ref()?.1));
        let step = turn.and_then(|turn| turn.step.as_ref());
        let step = step.and_then(|(event, since)| match event {
            AgentEvent::StepStarted { step, .. } => {
                (id.strip_prefix("step_")?.parse() == Ok(*step)).then_some(*since)
            }
            _ => None,
        });
        let mut background = self.background.iter().rev();
        let background = background.find(|(known, _)| known.as_str() == id);
        let since = call.or(step).or(background.map(|(_, since)| *since))?;
        Some(now.saturating_duration_since(since))
    }

    /// Events that give a new watcher the state of the turn.
    pub(crate) fn events(&self, now: Instant) -> Vec<WatchEvent> {
        let Some(turn) = &self.turn else {
            return Vec::new();
        };
        let age = |since: Instant| {
            let age = now.saturating_duration_since(since).as_millis();
            u64::try_from(age).unwrap_or(u64::MAX)
        };
        let live = |event, since| WatchEvent::Live {
            event,
            age_ms: age(since),
        };
        let mut events = Vec::new();
        events.extend(
            turn.message
                .clone()
                .map(|text| WatchEvent::Message { text }),
        );
        events.extend(turn.started.clone().map(|event| live(event, turn.since)));
        if let Some((step, since)) = &turn.step {
            events.push(live(step.clone(), *since));
            match &turn.answer {
                Some(text) if text.is_empty() => {}
                Some(text) => events.push(live(
                    AgentEvent::TextDelta {
                        text: text.as_str().into(),
                    },
                    now,
                )),
                None => events.push(WatchEvent::Missed { count: 1 }),
            }
        }
        for call in &turn.calls {
            let (call_id, name) = (call.id.clone(), Arc::clone(&call.name));
            events.push(live(
                AgentEvent::ToolRequested {
                    call_id: call_id.clone(),
                    name: Arc::clone(&name),
                    arguments: call.arguments.clone(),
                },
                now,
            ));
            if let Some((effect, since)) = call.started {
                let started = AgentEvent::ToolStarted {
                    call_id: call_id.clone(),
                    name,
                    effect,
                };
                events.push(live(started, since));
            }
            if !call.output.is_empty() {
                let text = call.output.as_str().into();
                let output = AgentEvent::ToolOutput {
                    call_id: call_id.clone(),
                    text,
                    base64: None,
                    missed_bytes: 0,
                };
                events.push(live(output, now));
            }
            if let Some(progress) = call.progress.clone() {
                events.push(live(AgentEvent::ToolProgress { call_id, progress }, now));
            }
        }
        events
    }

    fn begin(&mut self, number: TurnNumber, now: Instant) -> &mut SnapshotTurn {
        if self.turn.as_ref().is_none_or(|turn| turn.number != number) {
            self.turn = None;
        }
        self.turn.get_or_insert_with(|| SnapshotTurn {
            number,
            message: None,
            since: now,
            started: None,
            step: None,
            answer: None,
            calls: Vec::new(),
            usage: Usage::default(),
        })
    }
}

impl SnapshotTurn {
    fn call(&mut self, id: &CallId) -> Option<&mut SnapshotCall> {
        self.calls.iter_mut().find(|call| call.id == *id)
    }

    fn text(&mut self, text: &str) {
        let room = |so_far: &String| so_far.len() + text.len() <= ANSWER_BYTES_MAX;
        self.answer = self.answer.take().filter(room);
        if let Some(answer) = &mut self.answer {
            answer.push_str(text);
        }
    }
}

impl SnapshotCall {
    /// Appends output, and keeps only the last part of the output. The output is cut only when it is twice as long as
    /// the limit, so the cost per byte is constant.
    fn push(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * OUTPUT_BYTES_MAX {
            let cut = self
                .output
                .ceil_char_boundary(self.output.len() - OUTPUT_BYTES_MAX);
            self.output.drain(..cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::SessionId;

    use super::*;

    fn delta(text: &str) -> AgentEvent {
        AgentEvent::TextDelta { text: text.into() }
    }

    fn step() -> AgentEvent {
        AgentEvent::StepStarted {
            step: 1,
            model: "m".into(),
            is_guarded: false,
        }
    }

    fn started() -> AgentEvent {
        AgentEvent::TurnStarted {
            session_id: SessionId::new("s"),
            turn: TurnNumber(1),
        }
    }

    fn requested() -> AgentEvent {
        AgentEvent::ToolRequested {
            call_id: CallId::new("call_1"),
            name: "shell".into(),
            arguments: serde_json::json!({"command": "ls"}).into(),
        }
    }

    fn texts(snapshot: &TurnSnapshot, now: Instant) -> Vec<String> {
        let events = snapshot.events(now).into_iter();
        events
            .map(|event| match event {
                WatchEvent::Live { event, age_ms } => {
                    let json = serde_json::to_value(event).expect("JSON");
                    let name = json["event"].as_str().unwrap_or_default().to_owned();
                    let text = json["text"].as_str().unwrap_or_default();
                    format!("{name} {age_ms} {text}")
                }
                WatchEvent::Missed { .. } => "missed".to_owned(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn watcher_receives_the_state_of_the_turn() {
        let mut snapshot = TurnSnapshot::default();
        let begun = Instant::now();
        let later = begun + Duration::from_secs(3);
        snapshot.live(&delta("of no turn"), begun);
        assert!(snapshot.events(begun).is_empty() && snapshot.facts(begun).is_none());
        snapshot.live(&started(), begun);
        snapshot.live(&step(), begun);
        snapshot.live(&delta("one "), begun);
        snapshot.live(&delta("two"), later);
        let seen = [
            "turn_started 3000 ",
            "step_started 3000 ",
            "text_delta 0 one two",
        ];
        assert_eq!(texts(&snapshot, later), seen);
        let answered = AgentEvent::StepAnswered {
            step: 1,
            text: "one two".into(),
            finish: allstop_core::FinishReason::default(),
            calls: Arc::default(),
        };
        snapshot.live(&answered, later);
        snapshot.live(&requested(), later);
        let call_id = CallId::new("call_1");
        let started = AgentEvent::ToolStarted {
            call_id: call_id.clone(),
            name: "shell".into(),
            effect: Effect::Irreversible,
        };
        snapshot.live(&started, later);
        let text = format!("{}\nlast", "é".repeat(OUTPUT_BYTES_MAX * 2)).into();
        let output = AgentEvent::ToolOutput {
            call_id,
            text,
            base64: None,
            missed_bytes: 0,
        };
        snapshot.live(&output, later);
        let now = later + Duration::from_secs(2);
        let shown = texts(&snapshot, now);
        assert_eq!(shown[1..3], ["tool_requested 0 ", "tool_started 2000 "]);
        assert!(shown[3].ends_with("\nlast") && shown[3].len() <= OUTPUT_BYTES_MAX + 20);
        let label = snapshot.label(&CallId::new("call_1"));
        assert_eq!(label.as_deref(), Some("shell: ls"));
        assert_eq!(snapshot.age("call_1", now), Some(Duration::from_secs(2)));
        assert_eq!(snapshot.age("call_2", now), None);
        assert_eq!(
            snapshot.facts(now).map(|facts| facts.age),
            Some(Duration::from_secs(5))
        );
    }

    #[test]
    fn watcher_is_shown_the_latest_progress() {
        let mut snapshot = TurnSnapshot::default();
        let now = Instant::now();
        snapshot.live(&started(), now);
        snapshot.live(&requested(), now);
        for done in [1.0, 2.0] {
            let progress = CallProgress::checked(done, Some(3.0), Some("linking"));
            let progress = progress.expect("it is progress");
            let call_id = CallId::new("call_1");
            snapshot.live(&AgentEvent::ToolProgress { call_id, progress }, now);
        }
        let events = snapshot.events(now);
        let [.., WatchEvent::Live { event, .. }] = events.as_slice() else {
            panic!("{events:?}");
        };
        // Encoded as on the socket.
        let json = serde_json::to_string(event).expect("JSON");
        let event: AgentEvent = serde_json::from_str(&json).expect("an event");
        assert!(
            matches!(&event, AgentEvent::ToolProgress { progress, .. } if progress.to_string() == "linking (2/3)"),
            "{json}"
        );
    }

    #[test]
    fn snapshot_is_bounded_and_reports_missing_output() {
        let mut snapshot = TurnSnapshot::default();
        let now = Instant::now();
        snapshot.live(&started(), now);
        snapshot.live(&step(), now);
        for _ in 0..10 {
            snapshot.live(&delta(&"x".repeat(ANSWER_BYTES_MAX / 5)), now);
        }
        assert_eq!(texts(&snapshot, now)[2], "missed");
        snapshot.live(&step(), now);
        snapshot.live(&delta("again"), now);
        assert_eq!(texts(&snapshot, now)[2], "text_delta 0 again");
        snapshot.missed();
        assert_eq!(texts(&snapshot, now)[2], "missed");
        let ended = AgentEvent::TurnEnded {
            turn: TurnNumber(1),
            stop_reason: allstop_core::StopReason::Completed,
            cause: None,
            usage: Usage::default(),
            unfinished: Vec::new(),
            lost: None,
        };
        snapshot.live(&ended, now);
        assert!(snapshot.events(now).is_empty());
    }
}
