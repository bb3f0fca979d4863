//! Effects of a turn that ended without an answer: what the conversation, the next request and the outcome have. One
//! cell for each kind of history, policy and ending.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{
    Agent, Deadlines, EventSink, RepeatUnknown, RunHistory, RunRequest, Settings, TurnOutcome,
};
use allstop_core::turn::{Conversation, StopPolicy};
use allstop_core::{Message, SessionId, StopReason};
use allstop_model::{ModelError, ModelErrorKind, ModelRequest, Reply, ScriptedModel};
use allstop_testkit::ToolFn;
use allstop_tools::permission::FixedAnswer;
use allstop_tools::{PermissionAnswer, PermissionPolicy, PermissionQuestion, Prompter};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use crate::stops::user;
use crate::{ended, history, root, tools};

/// Ways in which the turn ends after its first step has completed the call `pay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Completed,
    Stop,
    Deadline,
    Error,
    Limit,
}

const ENDINGS: [Ending; 5] = [
    Ending::Completed,
    Ending::Stop,
    Ending::Deadline,
    Ending::Error,
    Ending::Limit,
];

impl Ending {
    /// Reply of the model in the second step. A turn that is limited to one step has no second step.
    fn second_reply(self) -> Option<Reply> {
        Some(match self {
            Self::Limit => return None,
            Self::Completed => Reply::text("done"),
            Self::Error => Reply::error(ModelError::new(
                ModelErrorKind::Invalid,
                "refused".to_owned(),
            )),
            Self::Stop | Self::Deadline => Reply::text("").call("hang", json!({"command": "wait"})),
        })
    }

    fn reason(self) -> StopReason {
        match self {
            Self::Completed => StopReason::Completed,
            Self::Stop => StopReason::Cancelled,
            Self::Deadline => StopReason::Timeout,
            Self::Error => StopReason::Error,
            Self::Limit => StopReason::MaxStepsReached,
        }
    }

    fn settings(self, stop_policy: StopPolicy) -> Settings {
        Settings::default()
            .stop_policy(stop_policy)
            .steps_max((self == Self::Limit).then_some(1))
            .deadlines(
                Deadlines::default()
                    .turn((self == Self::Deadline).then_some(Duration::from_secs(5))),
            )
    }
}

/// An agent with the tools `pay`, which returns at once, and `hang`, which ends only by force.
fn agent(model: &Arc<ScriptedModel>, settings: Settings) -> Agent {
    let pay = ToolFn::new("pay", |_| async { "receipt 17".to_owned() });
    let hang = ToolFn::new("hang", |_| std::future::pending());
    Agent::new(Arc::clone(model))
        .tools(tools(vec![pay, hang]))
        .settings(settings)
        .build()
}

fn script(replies: Vec<Reply>) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::in_order_of_calls(replies).keeping_requests())
}

fn pays() -> Reply {
    Reply::text("").call("pay", json!({"command": "17 euros"}))
}

fn bare() -> RunHistory {
    RunHistory::bare(SessionId::from("s1"), Arc::new(Conversation::default()))
}

/// Runs a turn, which a user stops in its second step if `is_stopped`.
async fn turn(
    agent: &Agent,
    history: RunHistory,
    prompt: &str,
    is_stopped: bool,
) -> (TurnOutcome, RunHistory) {
    let (sink, mut events) = EventSink::channel();
    let request = RunRequest::new(history, prompt);
    let run = agent.start(&root(), request, sink);
    if is_stopped {
        loop {
            let event = events.recv().await.expect("the run is under way");
            if let allstop_agent::AgentEvent::ToolStarted { name, .. } = event
                && &*name == "hang"
            {
                break;
            }
        }
        drop(run.stop(user()));
    }
    ended(run.finish().await.expect("the engine does not panic"))
}

fn note_of(request: &ModelRequest) -> Option<&str> {
    request
        .messages
        .iter()
        .find_map(|message| match &**message {
            Message::Note { text } if text.starts_with("Note of Allstop") => Some(&**text),
            _ => None,
        })
}

fn shows_result(request: &ModelRequest) -> bool {
    request.messages.iter().any(
        |message| matches!(&**message, Message::Tool(result) if &*result.content == "receipt 17"),
    )
}

#[tokio::test(start_paused = true)]
async fn each_ending_leaves_its_effects_in_the_conversation_or_in_a_note() {
    for ending in ENDINGS {
        for policy in [StopPolicy::Rollback, StopPolicy::Keep] {
            for is_logged in [false, true] {
                let cell = format!("{ending:?}, {policy:?}, logged: {is_logged}");

                let mut replies = vec![pays()];
                replies.extend(ending.second_reply());
                replies.extend([Reply::text("ok"), Reply::text("ok")]);
                let model = script(replies);
                let first = if is_logged { history().await } else { bare() };
                let agent_of_first = agent(&model, ending.settings(policy));
                let (outcome, history) = turn(
                    &agent_of_first,
                    first,
                    "pay 17 euros",
                    ending == Ending::Stop,
                )
                .await;
                assert_eq!(outcome.stop_reason, ending.reason(), "{cell}");
                let is_kept = ending == Ending::Completed || policy == StopPolicy::Keep;
                // The person sees the calls that the conversation does not show.
                let lost = outcome.lost.as_ref().map(ToString::to_string);
                assert_eq!(lost.is_some(), !is_kept, "{cell}");
                let said = lost.unwrap_or_default();
                assert!(
                    is_kept || said.contains("pay `17 euros`: completed"),
                    "{cell}: {said}"
                );
                let has_hung = matches!(ending, Ending::Stop | Ending::Deadline);
                assert_eq!(
                    said.contains("hang `wait`: outcome unknown"),
                    has_hung && !is_kept,
                    "{cell}: {said}"
                );
                // The next request has the result, or the note.
                let next = agent(&model, Settings::default());
                let (_, history) = turn(&next, history, "and now?", false).await;
                let requests = model.requests();
                let request = requests.last().expect("the next turn has asked");
                assert_eq!(shows_result(request), is_kept, "{cell}");
                let note = note_of(request).unwrap_or_default();
                assert_eq!(
                    note.contains("pay `17 euros`: completed. Its result began with: receipt 17"),
                    !is_kept,
                    "{cell}: {note}"
                );
                assert_eq!(
                    note.contains("Its message began with: pay 17 euros"),
                    !is_kept,
                    "{cell}: {note}"
                );
                // The note is sent once, as a part of the turn.
                let (_, history) = turn(&next, history, "once more", false).await;
                let notes = history
                    .conversation()
                    .messages
                    .iter()
                    .filter(|message| matches!(&***message, Message::Note { .. }))
                    .count();
                assert_eq!(notes, usize::from(!is_kept), "{cell}");
            }
        }
    }
}

/// Remembers the questions, and gives one answer.
#[derive(Debug)]
struct Person {
    asked: Mutex<Vec<String>>,
    answer: PermissionAnswer,
}

impl Prompter for Person {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        self.asked.lock().push(question.text);
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn protection_lasts_until_the_call_has_a_known_outcome() {
    let same = || json!({"command": "wait"});
    let yes: Arc<dyn Prompter> = Arc::new(FixedAnswer(PermissionAnswer::AllowOnce));
    let person: Arc<dyn Prompter> = Arc::new(Person {
        asked: Mutex::default(),
        answer: PermissionAnswer::AllowOnce,
    });
    let history = after_an_unknown_outcome(StopPolicy::Rollback).await;
    let (denied, history) = repeat_in(history, RepeatUnknown::Ask, Arc::clone(&yes), same()).await;
    assert_eq!(denied.len(), 1, "{denied:?}");
    let (denied, history) = repeat_in(history, RepeatUnknown::Ask, Arc::clone(&yes), same()).await;
    assert_eq!(
        denied.len(),
        1,
        "the denied turn has settled nothing: {denied:?}"
    );
    let (denied, history) = repeat_in(history, RepeatUnknown::Ask, person, same()).await;
    assert!(denied.is_empty(), "a person has allowed it: {denied:?}");
    let (denied, _) = repeat_in(history, RepeatUnknown::Ask, yes, same()).await;
    assert!(denied.is_empty(), "its outcome is known now: {denied:?}");
}

/// A history whose last turn has ended while the call `hang` had no known outcome.
async fn after_an_unknown_outcome(policy: StopPolicy) -> RunHistory {
    let hangs = Reply::text("").call("hang", json!({"command": "wait"}));
    let model = script(vec![hangs]);
    let settings = Settings::default().stop_policy(policy);
    turn(&agent(&model, settings), bare(), "go", true).await.1
}

/// Runs a turn that calls `hang` again. Returns the denials.
async fn repeat(
    history: RunHistory,
    repeat_unknown: RepeatUnknown,
    prompter: Arc<dyn Prompter>,
    arguments: serde_json::Value,
) -> Vec<String> {
    repeat_in(history, repeat_unknown, prompter, arguments)
        .await
        .0
}

/// Like [`repeat`], and also returns the history.
async fn repeat_in(
    history: RunHistory,
    repeat_unknown: RepeatUnknown,
    prompter: Arc<dyn Prompter>,
    arguments: serde_json::Value,
) -> (Vec<String>, RunHistory) {
    let model = script(vec![
        Reply::text("").call("hang", arguments),
        Reply::text("ok"),
    ]);
    let hang = ToolFn::new("hang", |_| async { "ran".to_owned() });
    let agent = Agent::new(model)
        .tools(tools(vec![hang]))
        .permissions(Arc::new(PermissionPolicy::default()), prompter)
        .settings(Settings::default().repeat_unknown(repeat_unknown))
        .build();
    let (outcome, history) = turn(&agent, history, "again", false).await;
    assert_eq!(outcome.stop_reason, StopReason::Completed);
    let denials = outcome.denials.into_iter().map(|denial| denial.reason);
    (denials.collect(), history)
}

#[tokio::test(start_paused = true)]
async fn repetition_of_a_call_with_an_unknown_outcome_needs_a_person() {
    for policy in [StopPolicy::Rollback, StopPolicy::Keep] {
        let same = || json!({"command": "wait"});
        // An approval that was given in advance is no person.
        let yes: Arc<dyn Prompter> = Arc::new(FixedAnswer(PermissionAnswer::AllowOnce));
        let history = after_an_unknown_outcome(policy).await;
        let denied = repeat(history, RepeatUnknown::Ask, Arc::clone(&yes), same()).await;
        assert!(
            denied[0].contains("may have had its effect"),
            "{policy:?}: {denied:?}"
        );
        let person = Arc::new(Person {
            asked: Mutex::default(),
            answer: PermissionAnswer::AllowOnce,
        });
        let history = after_an_unknown_outcome(policy).await;
        let denied = repeat(
            history,
            RepeatUnknown::Ask,
            Arc::clone(&person) as _,
            same(),
        )
        .await;
        assert!(denied.is_empty(), "{policy:?}: {denied:?}");
        let asked = person.asked.lock().join("\n");
        assert!(
            asked.contains("was started in an earlier turn"),
            "{policy:?}: {asked}"
        );
        let history = after_an_unknown_outcome(policy).await;
        let denied = repeat(
            history,
            RepeatUnknown::Deny,
            Arc::clone(&person) as _,
            same(),
        )
        .await;
        assert!(
            denied[0].contains("may have had its effect"),
            "{policy:?}: {denied:?}"
        );
        let history = after_an_unknown_outcome(policy).await;
        let denied = repeat(history, RepeatUnknown::Allow, Arc::clone(&yes), same()).await;
        assert!(denied.is_empty(), "{policy:?}: {denied:?}");
        let history = after_an_unknown_outcome(policy).await;
        let other = json!({"command": "other"});
        let denied = repeat(history, RepeatUnknown::Deny, yes, other).await;
        assert!(denied.is_empty(), "other arguments, {policy:?}: {denied:?}");
    }
}
