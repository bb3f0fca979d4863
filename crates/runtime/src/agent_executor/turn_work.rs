//! Work of a task's turn: what runs for it in its session, and what a stop of the task would find.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::ReceiptItem;
use allstop_core::record::Attachment;
use allstop_core::{MessageId, TurnNumber};
use allstop_session::{Session, StopTarget};
use allstop_tools::BackgroundWork;
use parking_lot::Mutex;

/// The turn of a task in its session. Shared by the execution that follows it and by previews.
#[derive(Debug)]
pub(super) struct TurnWork {
    session: Session,
    message: MessageId,
    known: Mutex<KnownWork>,
}

/// Background work, as far as the events have named it.
#[derive(Debug)]
struct KnownWork {
    turn: Option<TurnNumber>,
    own: HashSet<BackgroundId>,
    /// Background work of other turns.
    other: HashSet<BackgroundId>,
    /// True once all background work of the turn is in `own`.
    is_own_complete: bool,
}

impl TurnWork {
    /// The turn that answers this message. Background work that runs already belongs to other turns.
    pub(super) fn new(session: Session, message: MessageId) -> Self {
        let earlier = session.background();
        Self {
            known: Mutex::new(KnownWork {
                turn: None,
                own: HashSet::new(),
                other: earlier.iter().map(|work| work.id.clone()).collect(),
                is_own_complete: false,
            }),
            session,
            message,
        }
    }

    /// Number of the turn, once it has begun.
    pub(super) fn turn(&self) -> Option<TurnNumber> {
        self.known.lock().turn
    }

    pub(super) fn begun(&self, turn: TurnNumber) {
        self.known.lock().turn = Some(turn);
    }

    pub(super) fn note_background(&self, id: BackgroundId, turn: TurnNumber) {
        let mut known = self.known.lock();
        let works = if known.turn == Some(turn) {
            &mut known.own
        } else {
            &mut known.other
        };
        works.insert(id);
    }

    /// Notes that the events have named all background work of the turn.
    pub(super) fn complete(&self) {
        self.known.lock().is_own_complete = true;
    }

    /// Attached background work of the turn that runs. Work that is not recorded yet counts, unless another turn may
    /// have started it.
    pub(super) fn running_background(&self) -> Vec<Arc<BackgroundWork>> {
        let mut works = self.session.background();
        let known = self.known.lock();
        if known.turn.is_none() {
            return Vec::new();
        }
        let is_own = |work: &BackgroundWork| {
            known.own.contains(&work.id)
                || !(known.is_own_complete || known.other.contains(&work.id))
        };
        works.retain(|work| {
            work.is_running() && work.attachment() == Attachment::Attached && is_own(work)
        });
        works
    }

    /// Items that a stop of the task would find in the session now.
    pub(super) fn preview(&self) -> Vec<ReceiptItem> {
        let message = StopTarget::Message(self.message.clone());
        let background = self.running_background().into_iter();
        let targets = background.map(|work| StopTarget::Background(work.id.clone()));
        let targets = std::iter::once(message).chain(targets);
        targets
            .flat_map(|target| self.session.preview(&target).items().to_vec())
            .collect()
    }
}
