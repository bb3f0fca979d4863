//! Result of a search for the running processes of a session's ended owners. A search can end without having examined
//! all processes. Then a receipt must not claim that no work is left.

use allstop_core::MessageId;
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};

use crate::orphan_scan::OrphanedWork;

/// Id and name of the receipt item for a search that did not finish.
const SEARCH_NAME: &str = "search for left processes";

/// Orphaned work that a search has found, and turns whose calls the search could not account for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a search that did not finish has not shown that no work is left"]
pub struct OrphanSearch {
    /// The found work.
    pub works: Vec<OrphanedWork>,
    /// Turns whose calls may have running processes that the search has not found.
    pub unsearched: UnsearchedTurns,
}

impl OrphanSearch {
    /// Result of a search that was impossible: the turn of this message may have running work.
    pub fn unsearched(message: MessageId) -> Self {
        Self {
            works: Vec::new(),
            unsearched: UnsearchedTurns::new([Some(message)]),
        }
    }

    /// Receipt items for the found work, and for the work that the search could not account for.
    pub fn items(&self) -> Vec<ReceiptItem> {
        let running = self.works.iter().map(OrphanedWork::running_item);
        running.chain(self.unsearched.item()).collect()
    }
}

/// Turns of ended owners whose calls an unfinished search could not account for. Empty after a complete search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsearchedTurns(Vec<Option<MessageId>>);

impl UnsearchedTurns {
    /// Turns with these messages. `None` is a turn without a message.
    pub(crate) fn new(messages: impl IntoIterator<Item = Option<MessageId>>) -> Self {
        Self(messages.into_iter().collect())
    }

    /// True if the search has examined all processes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the turn of this message is one of the turns.
    pub fn contains(&self, message: &MessageId) -> bool {
        self.0.iter().flatten().any(|own| own == message)
    }

    /// Keeps only the turn of this message.
    pub fn retain_message(&mut self, message: &MessageId) {
        self.0.retain(|own| own.as_ref() == Some(message));
    }

    /// Receipt item for the processes that the search could not account for. `None` after a complete search.
    pub fn item(&self) -> Option<ReceiptItem> {
        (!self.is_empty()).then(unsearched_item)
    }
}

/// Receipt item for processes that may run, because a search for them did not finish.
pub(crate) fn unsearched_item() -> ReceiptItem {
    let state = ItemState::Unreachable {
        why: NotStoppedReason::WatcherGone,
    };
    let mut item = ReceiptItem::new(ItemKind::Process, SEARCH_NAME, SEARCH_NAME, state);
    item.note = Some(
        "the search did not finish: processes of calls whose owner was killed may run; repeat the stop".into(),
    );
    item
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use allstop_agent::Agent;
    use allstop_core::receipt::NothingToStop;
    use allstop_core::{Cause, CauseKind, Receipt};
    use allstop_log::MemoryLog;
    use allstop_model::ScriptedModel;
    use allstop_scope::{RootOptions, Scope};

    use super::*;
    use crate::{Session, SessionOptions, Sessions, StopTarget};

    /// A session whose open could not search the processes of the message `m1`.
    async fn unsearched_session() -> Session {
        let agent = Agent::new(Arc::new(ScriptedModel::new(Vec::new()))).build();
        let scope = Scope::root("test", RootOptions::single_runtime());
        let log = Arc::new(MemoryLog::default());
        let sessions = Sessions::new(log, scope, Arc::new(agent), SessionOptions::default());
        let session = sessions.create(Some("s1".into()), "/tmp").await;
        let session = session.expect("a new session");
        let unsearched = UnsearchedTurns::new([Some(MessageId::new("m1"))]);
        session.inner.state.lock().orphans.unsearched = unsearched;
        session
    }

    async fn stop(session: &Session, target: &StopTarget) -> Arc<Receipt> {
        session
            .stop(target, Cause::new(CauseKind::User))
            .receipt()
            .await
    }

    /// Regression: the receipt claimed that nothing was left, although the search for left processes had not finished.
    #[tokio::test]
    async fn receipt_lists_the_unfinished_search() {
        let session = unsearched_session().await;
        for target in [
            StopTarget::TurnAndBackground,
            StopTarget::MessageWork("m1".into()),
        ] {
            let preview = session.preview(&target);
            let stopped = stop(&session, &target).await;
            for receipt in [&preview, &*stopped] {
                assert!(
                    !receipt.quiet() && !receipt.cancel_observed(),
                    "{receipt:#?}"
                );
                assert_eq!(receipt.outcome(), None);
                let [item] = receipt.items() else {
                    panic!("{receipt:#?}")
                };
                assert_eq!(item.state.as_str(), "unreachable");
            }
        }
    }

    #[tokio::test]
    async fn stop_without_left_work_in_its_extent_ignores_the_search() {
        let session = unsearched_session().await;
        for target in [
            StopTarget::Turn,
            StopTarget::MessageWork("m2".into()),
            StopTarget::Background("bg_1".into()),
        ] {
            let receipts = [
                session.preview(&target),
                Receipt::clone(&*stop(&session, &target).await),
            ];
            for receipt in receipts {
                assert!(
                    receipt.quiet() && receipt.items().is_empty(),
                    "{receipt:#?}"
                );
                assert!(receipt.outcome() != Some(NothingToStop::Ending));
            }
        }
    }
}
