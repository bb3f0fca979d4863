//! Answers of a worker to questions from other processes of the cluster.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{TaskId, WorkerId};
use allstop_log::Version;
use futures::StreamExt as _;
use tokio::time::timeout;

use super::attend::{ClaimCapacity, StepResult};
use super::link::AskedQuestion;
use super::node::{ClusterNode, LIVE_TEXT_WAITS_MAX};
use super::owner_question::{AttendReply, LiveTextAnswer, OwnerQuestion};
use crate::live_text::LiveCursor;
use crate::manager::ManagerInner;

/// Longest time that an answer waits until the execution has read records of other processes.
const OBSERVED_MAX: Duration = Duration::from_secs(2);

/// Number of questions that are answered at the same time.
const QUESTIONS_MAX: usize = 2 * LIVE_TEXT_WAITS_MAX;

/// Longest time that an owner waits for more text before it answers without text.
const TEXT_WAIT_MAX: Duration = Duration::from_secs(2);

impl ManagerInner {
    /// Answers questions to this worker until the link fails.
    pub(super) async fn answer_questions(
        self: &Arc<Self>,
        node: &Arc<ClusterNode>,
        worker: &WorkerId,
    ) {
        let questions = match node.link().questions(worker).await {
            Ok(questions) => questions,
            Err(error) => {
                tracing::warn!(%error, "this worker cannot receive requests, such as stops");
                return;
            }
        };
        questions
            .for_each_concurrent(QUESTIONS_MAX, |asked| {
                let (manager, own) = (Arc::clone(self), Arc::clone(node));
                async move { manager.answer(&own, asked).await }
            })
            .await;
    }

    async fn answer(self: &Arc<Self>, node: &ClusterNode, asked: AskedQuestion) {
        let answer = match serde_json::from_slice(&asked.question) {
            Ok(OwnerQuestion::Attend { task, stop }) => {
                if let Some(cause) = stop
                    && let Some(execution) = self.execution_here(&task)
                {
                    // The engine of the execution waits for the receipt of the stop, and writes the receipt with the
                    // end of the execution.
                    drop(execution.stop(cause));
                }
                let attended = self.attend_to_question(node, &task).await;
                serde_json::to_vec(&attended)
            }
            Ok(OwnerQuestion::Drain) => {
                self.stop_taking();
                node.is_drained.send_replace(true);
                serde_json::to_vec(&AttendReply::Observed)
            }
            Ok(OwnerQuestion::StopLeft { task, cause }) => {
                let stopped = match self.stored(&task).await {
                    Ok((_, task)) if task.has_ended() => self.stop_orphans_here(&task, cause).await,
                    _ => None,
                };
                serde_json::to_vec(&stopped)
            }
            Ok(OwnerQuestion::Preview { task, cause }) => {
                serde_json::to_vec(&self.preview_here(&task, cause))
            }
            Ok(OwnerQuestion::LiveText {
                task,
                records_until,
                cursor,
            }) => {
                let text = self.live_text_here(node, &task, records_until, cursor);
                serde_json::to_vec(&text.await)
            }
            Err(_newer) => return,
        };
        (asked.answer)(answer.unwrap_or_default()).await;
    }

    async fn attend_to_question(
        self: &Arc<Self>,
        node: &ClusterNode,
        task: &TaskId,
    ) -> AttendReply {
        let execution = match self.execution_here(task) {
            Some(execution) => execution,
            // A question reserves no permit for an execution at this worker, so this worker can only stop the task. The
            // worker that asks has a permit, and can run the task.
            None => match self
                .attend(node, task, Version(0), ClaimCapacity::None)
                .await
            {
                Ok(StepResult::Here(execution)) => execution,
                Ok(StepResult::Done(Some((_, task)))) if task.has_ended() => {
                    return AttendReply::Observed;
                }
                _ => return AttendReply::Nothing,
            },
        };
        // This read finds a stop request in the log, if there is one. The request then stops the execution.
        let _looked = timeout(OBSERVED_MAX, execution.look()).await;
        if execution.is_stopping() || execution.is_ending() {
            AttendReply::Observed
        } else {
            AttendReply::Runs
        }
    }
}

impl ManagerInner {
    /// Answers a subscriber in another process. Waits a moment for more text, unless too many subscribers wait.
    async fn live_text_here(
        &self,
        node: &ClusterNode,
        task: &TaskId,
        records_until: Version,
        cursor: LiveCursor,
    ) -> LiveTextAnswer {
        let feed = self.feed_here(task)?;
        let permit = node.live_text_waits.try_acquire();
        let max = if permit.is_ok() {
            TEXT_WAIT_MAX
        } else {
            Duration::ZERO
        };
        let text = async {
            tokio::select! {
                biased;
                text = feed.read_live_after(records_until, cursor) => Some(text),
                // The subscriber must first receive this record, and then asks again.
                _record = feed.read_after(records_until, false) => None,
            }
        };
        timeout(max, text).await.ok().flatten()
    }
}
