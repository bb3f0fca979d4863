//! The next action, chosen at random.

use std::time::Duration;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::{CallId, Cause, CauseKind};
use allstop_session::{FollowUp, NewMessage, Session, StopTarget};
use allstop_tools::PermissionAnswer;
use tokio::time::{advance, sleep, timeout};

use super::SoakState;
use super::parts::KINDS;
use super::process_run::SoakSession;
use super::session_removal::is_quiet;

/// Maximum time to wait between two turns for work that the owner of the session does.
const PATIENCE: Duration = Duration::from_mins(20);

impl SoakState {
    /// Performs a random action on a session, and lets some time pass.
    pub(super) async fn act(&mut self, number: usize, opened: &mut SoakSession) {
        let session = opened.session.clone();
        let what = match self.random.below(100) {
            0..45 => self.send(number, opened),
            45..58 => self.stop(number, &session).await,
            // This action has a large share, because it needs parallel calls, and parallel calls are rare.
            58..66 => self.cancel_one_of_several(&session).await,
            66..70 => self.undo(&session).await,
            70..73 => self.compact(&session).await,
            73..78 => self.promote(&session),
            78..81 => self.detach(&session).await,
            81..90 => self.answer(&session),
            _ => "wait".to_owned(),
        };
        self.did(format!("{number}: {what}"));
        self.pass().await;
    }

    fn send(&mut self, number: usize, opened: &mut SoakSession) -> String {
        let all: u64 = KINDS.iter().map(|(_, often)| often).sum();
        let mut chosen = self.random.below(all);
        let kind = KINDS.iter().find(|(_, often)| {
            let is_it = chosen < *often;
            chosen = chosen.saturating_sub(*often);
            is_it
        });
        let kind = kind.map_or("talk", |(kind, _)| kind);
        let policy = self.random.below(FollowUp::ALL.len() as u64) as usize;
        let policy = FollowUp::ALL.get(policy).copied().unwrap_or_default();
        let ms = self.random.below(3_000);
        let message = NewMessage::from(format!("{kind} {ms}")).policy(policy);
        match opened.session.send(message) {
            Ok(sent) => {
                *self.figure("messages") += 1;
                let is_divided = matches!(kind, "divide" | "delegate");
                *self.figure("messages for sub-agents") += u64::from(is_divided);
                if let Some(kept) = self.sessions.get_mut(number) {
                    kept.messages += 1;
                }
                let said = format!("{policy} {kind} {ms}: {} {:?}", sent.id, sent.admission);
                opened.sent.push((*self.figure("jumps of the clock"), sent));
                said
            }
            Err(error) => {
                *self.figure("messages refused") += 1;
                format!("{policy} {kind} {ms}: {error}")
            }
        }
    }

    async fn stop(&mut self, number: usize, session: &Session) -> String {
        *self.figure("stops") += 1;
        let targets = [
            Some(StopTarget::Turn),
            Some(StopTarget::TurnAndBackground),
            self.one_of(session.running_calls()).map(StopTarget::Call),
            self.one_of(background(session)).map(StopTarget::Background),
        ];
        let chosen = self.random.below(targets.len() as u64) as usize;
        let target = targets.into_iter().nth(chosen).flatten();
        let target = target.unwrap_or_else(|| StopTarget::Call(CallId::new("call_none")));
        let stopping = session.stop(&target, Cause::new(CauseKind::User));
        // Most users do not wait for the receipt of a stop.
        if self.random.below(4) > 0 {
            return format!("stop {target:?}");
        }
        match timeout(PATIENCE, stopping.receipt()).await {
            Ok(receipt) if is_quiet(self, number, &receipt).await => {}
            Ok(receipt) => self.broken(format!("{target:?} is not quiet: {receipt:?}")),
            Err(_) => self.broken(format!("the stop of {target:?} has no answer")),
        }
        format!("stop {target:?} and wait")
    }

    /// Cancels one of several parallel calls. The other calls continue, and the receipt contains only the cancelled
    /// call.
    async fn cancel_one_of_several(&mut self, session: &Session) -> String {
        let calls = session.running_calls();
        if calls.len() < 2 {
            return "no calls side by side".to_owned();
        }
        let Some(call) = self.one_of(calls.clone()) else {
            return "no calls".to_owned();
        };
        let stopping = session.stop(&StopTarget::Call(call.clone()), Cause::new(CauseKind::User));
        let left = session.running_calls();
        let mut others = calls.iter().filter(|other| **other != call);
        if let Some(gone) = others.find(|other| !left.contains(other)) {
            self.broken(format!("{call} was cancelled, and {gone} is gone"));
        }
        match timeout(PATIENCE, stopping.receipt()).await {
            Ok(receipt) => {
                let of_others = |item: &&ReceiptItem| {
                    calls
                        .iter()
                        .any(|other| *other != call && *item.id == *other.as_str())
                };
                if let Some(item) = receipt.items().iter().find(of_others) {
                    self.broken(format!(
                        "{call} was cancelled, and its receipt has {item:?}"
                    ));
                }
            }
            Err(_) => self.broken(format!("the stop of {call} has no answer")),
        }
        *self.figure("calls cancelled alone") += 1;
        format!("cancel {call} of {}", calls.len())
    }

    fn promote(&mut self, session: &Session) -> String {
        let calls = session.running_calls();
        for call in &calls {
            // Some calls cannot be promoted.
            *self.figure("calls promoted") += u64::from(session.promote(call).is_ok());
        }
        format!("promote {calls:?}")
    }

    /// Detaches background work, so that no stop covers it any more.
    async fn detach(&mut self, session: &Session) -> String {
        let Some(work) = self.one_of(running_commands(session)) else {
            return "nothing to let go".to_owned();
        };
        // The call of `detach` waits for the running turn, and this turn may wait for a person.
        match timeout(Duration::from_mins(1), session.detach(&work)).await {
            Ok(Ok(())) => {
                *self.figure("commands detached") += 1;
                let works = session.background();
                if works
                    .iter()
                    .any(|other| other.id == work && other.is_running())
                {
                    self.broken(format!("{work} was let go, and is said to run here"));
                }
                format!("let {work} go")
            }
            Ok(Err(error)) => format!("let {work} go: {error}"),
            Err(_) => format!("let {work} go, and gone away"),
        }
    }

    async fn undo(&mut self, session: &Session) -> String {
        let undoing = session.undo();
        // The undo waits for running work, and this work may wait for a person.
        match timeout(Duration::from_secs(20), undoing).await {
            Ok(Ok(turn)) => {
                *self.figure("turns undone") += 1;
                format!("undo {turn}")
            }
            Ok(Err(error)) => format!("undo: {error}"),
            Err(_) => "undo, and gone away".to_owned(),
        }
    }

    async fn compact(&mut self, session: &Session) -> String {
        match timeout(Duration::from_secs(20), session.compact()).await {
            Ok(Ok(_)) => {
                *self.figure("compactions") += 1;
                "compact".to_owned()
            }
            Ok(Err(error)) => format!("compact: {error}"),
            Err(_) => "compact, and gone away".to_owned(),
        }
    }

    fn answer(&mut self, session: &Session) -> String {
        let questions = session.questions();
        let allowed = self.random.below(4) > 0;
        for open in &questions {
            let answer = if allowed {
                PermissionAnswer::AllowOnce
            } else {
                PermissionAnswer::deny()
            };
            // A stop may have ended the permission question before the answer arrives.
            let _taken = session.answer(&open.id, answer);
        }
        format!("answer {} questions: {allowed}", questions.len())
    }

    /// Lets time pass: usually so little that the next action occurs during a turn, but sometimes hours at once.
    async fn pass(&mut self) {
        match self.random.below(100) {
            0 => {
                *self.figure("jumps of the clock") += 1;
                let hours = 1 + self.random.below(6);
                advance(Duration::from_hours(hours)).await;
            }
            1..10 => sleep(Duration::from_secs(self.random.below(120))).await,
            10..80 => sleep(Duration::from_millis(self.random.below(1_500))).await,
            _ => tokio::task::yield_now().await,
        }
    }

    fn one_of<T>(&mut self, all: Vec<T>) -> Option<T> {
        let chosen = self.random.below(all.len() as u64) as usize;
        all.into_iter().nth(chosen)
    }
}

fn background(session: &Session) -> Vec<BackgroundId> {
    let works = session.background();
    works.iter().map(|work| work.id.clone()).collect()
}

fn running_commands(session: &Session) -> Vec<BackgroundId> {
    let works = session.background();
    let commands = works
        .iter()
        .filter(|work| work.is_running() && work.process().is_some());
    commands.map(|work| work.id.clone()).collect()
}
