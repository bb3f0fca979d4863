//! Drives the turn engine without I/O. The driver is a small session with a log, a conversation and a budget.

use std::sync::Arc;

use allstop_core::decision::CommitDecision;
use allstop_core::message::{Arguments, check_history};
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::turn::{
    Conversation, Draft, NextAction, NotCommittedReason, SessionState, StartRefusal, StopPolicy,
    StoppedTurn, TurnLimits, TurnStart, TurnState, TurnStop,
};
use allstop_core::{
    CallId, Cause, CauseKind, Effect, FinishReason, Images, SessionId, StopReason, Timestamp,
    ToolCall, ToolResult, Usage,
};
use serde_json::{Value, json};

/// Time of all records. No test depends on the value.
pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_ms(1_790_000_000_000)
}

pub(crate) fn model() -> Arc<str> {
    "scripted".into()
}

pub(crate) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    }
}

pub(crate) fn malformed(id: &str, name: &str, text: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Arguments::Malformed(text.into()),
    }
}

pub(crate) fn result(id: &CallId, content: &str) -> ToolResult {
    ToolResult {
        call_id: id.clone(),
        content: content.into(),
        is_error: false,
        images: Images::default(),
    }
}

pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        cached_input_tokens: 0,
        cache_write_input_tokens: 0,
        output_tokens,
        estimated: false,
    }
}

pub(crate) fn user() -> Cause {
    Cause::new(CauseKind::User).detail("ctrl-c")
}

pub(crate) fn deadline() -> Cause {
    Cause::new(CauseKind::Deadline).detail("turn deadline of 2s")
}

/// Outcome of a turn of [`Session`].
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Committed,
    Stopped(StopReason, Cause),
}

impl Outcome {
    pub(crate) fn reason(&self) -> StopReason {
        match self {
            Self::Committed => StopReason::Completed,
            Self::Stopped(reason, _) => *reason,
        }
    }
}

/// Stop of a turn of [`Session`]. The records of the stop are in the log.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) reason: StopReason,
    pub(crate) cause: Cause,
    pub(crate) state: TurnState,
}

/// A session: its committed conversation and its log.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) log: Vec<SessionRecord>,
    pub(crate) limits: TurnLimits,
    pub(crate) policy: StopPolicy,
}

impl Session {
    pub(crate) fn new(limits: TurnLimits) -> Self {
        let opened = SessionRecord::SessionOpened {
            session_id: SessionId::new("s"),
            at: at(),
            folder: "/".into(),
        };
        let (conversation, policy) = (Arc::default(), StopPolicy::Rollback);
        Self {
            conversation,
            log: vec![opened],
            limits,
            policy,
        }
    }

    /// State computed from the log. Fails the test if a record is refused.
    pub(crate) fn state(&self) -> SessionState {
        SessionState::fold(&self.log).expect("the log of a session can be folded")
    }

    pub(crate) fn start(&self, input: &str) -> TurnStart {
        let turn = self.state().next_turn();
        TurnStart {
            turn,
            input: input.into(),
            images: Images::default(),
            at: at(),
            owner: None,
            message: None,
            origin: allstop_core::record::TurnOrigin::User,
            notes: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, input: &str) -> Draft {
        self.try_begin(input, Arc::new(CommitDecision::new()))
            .expect("nothing refuses the turn")
    }

    pub(crate) fn try_begin(
        &mut self,
        input: &str,
        decision: Arc<CommitDecision>,
    ) -> Result<Draft, StartRefusal> {
        let start = self.start(input);
        let draft = Draft::begin(
            Arc::clone(&self.conversation),
            &start,
            &self.limits,
            decision,
        );
        match &draft {
            Ok(_) => self.log.push(start.record()),
            Err(refusal) => {
                let base = Arc::clone(&self.conversation);
                let stopped = refusal.stop(&start, self.policy, None, base);
                self.log.extend(stopped.records);
            }
        }
        draft
    }

    /// Runs a model call that answers with text.
    pub(crate) fn answer(&mut self, draft: &mut Draft, text: &str, cost: Usage) {
        let step = draft
            .begin_step(&model(), cost.total_tokens(), at())
            .expect("the step begins");
        let answer = draft
            .finish_model(text, Vec::new(), cost, FinishReason::Done)
            .expect("the model call is open");
        assert_eq!(answer.next, NextAction::Commit);
        self.log.extend([step.record, answer.record]);
    }

    /// Runs a model call that requests tool calls.
    pub(crate) fn ask(&mut self, draft: &mut Draft, calls: Vec<ToolCall>) -> Vec<ToolCall> {
        let step = draft
            .begin_step(&model(), 10, at())
            .expect("the step begins");
        let answer = draft
            .finish_model("", calls, usage(8, 2), FinishReason::Done)
            .expect("the model call is open");
        let NextAction::Calls(calls) = answer.next else {
            panic!("the model asked for calls")
        };
        self.log.extend([step.record, answer.record]);
        calls
    }

    pub(crate) fn begin_call(&mut self, draft: &mut Draft, id: &CallId) {
        let record = draft
            .begin_call(id, Effect::Irreversible, at())
            .expect("the call begins");
        self.log.push(record);
    }

    pub(crate) fn run_call(&mut self, draft: &mut Draft, id: &CallId) {
        self.begin_call(draft, id);
        let record = draft
            .finish_call(result(id, "done"), CallOutcome::Succeeded)
            .expect("the call is open");
        self.log.push(record);
    }

    pub(crate) fn stop(&mut self, draft: Draft, cause: Cause) -> Ended {
        let mut stopped = draft.stop(TurnStop::new(cause, self.policy, at()));
        self.log.append(&mut stopped.records);
        self.conversation = Arc::clone(&stopped.conversation);
        self.check();
        let StoppedTurn {
            reason,
            cause,
            state,
            ..
        } = stopped;
        Ended {
            reason,
            cause,
            state,
        }
    }

    /// Commits the turn. If the turn was stopped, ends the turn with the first cause.
    pub(crate) fn end(&mut self, draft: Draft) -> Outcome {
        match draft.commit(at()) {
            Ok(commit) => {
                self.log.push(commit.record().clone());
                self.conversation = commit.publish();
                self.check();
                Outcome::Committed
            }
            Err(not) => {
                let NotCommittedReason::Stopped(cause) = not.why else {
                    panic!("the driver has a bug: {}", not.why)
                };
                let stopped = self.stop(not.draft, cause);
                Outcome::Stopped(stopped.reason, stopped.cause)
            }
        }
    }

    /// Runs a whole turn with one step.
    pub(crate) fn turn(&mut self, input: &str, cost: Usage) -> Outcome {
        let decision = Arc::new(CommitDecision::new());
        let mut draft = match self.try_begin(input, decision) {
            Ok(draft) => draft,
            Err(refusal) => return Outcome::Stopped(refusal.reason(), refusal.cause()),
        };
        match draft.begin_step(&model(), cost.total_tokens(), at()) {
            Ok(step) => self.log.push(step.record),
            Err(allstop_core::turn::DraftError::Refused(refusal)) => {
                let mut stopped = draft.stop(TurnStop::refused(&refusal, self.policy, at()));
                self.log.append(&mut stopped.records);
                self.conversation = Arc::clone(&stopped.conversation);
                self.check();
                return Outcome::Stopped(stopped.reason, stopped.cause);
            }
            Err(illegal) => panic!("the driver has a bug: {illegal}"),
        }
        let answer = draft
            .finish_model("done", Vec::new(), cost, FinishReason::Done)
            .expect("the model call is open");
        self.log.push(answer.record);
        self.end(draft)
    }

    /// Checks the invariants after each ending. The state computed from the log equals the state in memory, no turn is
    /// open, the history is valid, and each turn has one ending.
    pub(crate) fn check(&self) {
        let state = self.state();
        assert_eq!(
            *state.conversation(),
            self.conversation,
            "memory and log differ"
        );
        assert!(state.open_turn().is_none(), "a turn is open");
        self.conversation.check().expect("the history is valid");
        for turn in state.turns() {
            let endings = self
                .log
                .iter()
                .filter(|record| is_ending_of(record, turn.turn.0));
            assert_eq!(endings.count(), 1, "turn {} has not one ending", turn.turn);
        }
    }
}

fn is_ending_of(record: &SessionRecord, number: u32) -> bool {
    match record {
        SessionRecord::TurnCommitted { turn, .. } | SessionRecord::TurnStopped { turn, .. } => {
            turn.0 == number
        }
        _ => false,
    }
}

/// Checks that the request to the model is a valid history.
pub(crate) fn check_request(draft: &Draft) {
    let messages = draft.request_messages();
    check_history(messages.iter().map(AsRef::as_ref)).expect("the request is valid");
}

/// A conversation without the effects that its messages do not show.
pub(crate) fn shown(conversation: &Conversation) -> Conversation {
    Conversation {
        lost: Vec::new(),
        ..conversation.clone()
    }
}

/// Runs a complete step. Then begins a second step with one running call and one call that has not begun.
pub(crate) fn turn_in_two_tools(session: &mut Session) -> Draft {
    let mut draft = session.begin("go");
    let calls = session.ask(&mut draft, vec![call("a", "read", json!({"path": "x"}))]);
    session.run_call(&mut draft, &calls[0].id);
    let calls = session.ask(
        &mut draft,
        vec![call("b", "shell", json!({})), call("c", "shell", json!({}))],
    );
    session.begin_call(&mut draft, &calls[0].id);
    draft
}
