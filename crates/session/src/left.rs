//! Background work that runs without this process: listed, and stopped on request.
//!
//! Such work is below no scope, because this session must not end it unasked. A stop moves the work into a scope; from
//! then on the stop proceeds as for all work.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{
    How, ItemKind, ItemState, ReceiptItem, StopFindings, StopOutcome, Why,
};
use allstop_core::record::SessionRecord;
use allstop_core::{Cause, Extent, Receipt};
use allstop_process::{ReattachError, reattach};
use allstop_scope::{Scope, ScopeOptions, StopOrder, WorkSpec};

use crate::found::{self, FoundWork};
use crate::shared::Shared;
use crate::stopping::{StopTarget, Stopping};

#[derive(Debug)]
pub(crate) struct LeftWork {
    work: FoundWork,
    /// Scope of the work, once a stop was requested.
    scope: Option<Scope>,
    /// State after the stop, until it is recorded.
    ended: Option<ItemState>,
}

impl Shared {
    /// Adds work that this process does not watch, or no longer watches.
    pub(crate) fn remember_left(&self, found: impl IntoIterator<Item = FoundWork>) {
        let mut inner = self.inner.lock();
        for work in found.into_iter().filter(|work| work.alive) {
            inner.left.retain(|left| left.work.id != work.id);
            inner.left.push(LeftWork {
                work,
                scope: None,
                ended: None,
            });
        }
    }

    /// Background work that runs without this process, as of the last check.
    pub(crate) fn left(&self) -> Vec<FoundWork> {
        let inner = self.inner.lock();
        inner.left.iter().map(|left| left.work.clone()).collect()
    }

    /// Checks the work again. Ended work is not checked again, since the check would read all of `/proc`.
    pub(crate) async fn look_for_left(&self, scope: &Scope) -> Vec<FoundWork> {
        let left = found::look(scope, self.left()).await;
        let mut inner = self.inner.lock();
        for gone in left.iter().filter(|work| !work.alive) {
            let mut known = inner.left.iter_mut();
            if let Some(known) = known.find(|known| known.work.id == gone.id) {
                known.work.alive = false;
            }
        }
        left
    }

    /// Takes the records of work that has ended since the last call.
    pub(crate) fn take_left_ends(&self) -> Vec<SessionRecord> {
        let mut inner = self.inner.lock();
        let ended = inner.left.iter_mut().filter_map(|left| {
            Some(SessionRecord::BackgroundEnded {
                id: left.work.id.clone(),
                state: left.ended.take()?,
                exit_code: None,
                usage: None,
            })
        });
        ended.collect()
    }

    /// Item that a stop of the work would find.
    pub(crate) fn preview_left(&self, target: &StopTarget) -> Option<ReceiptItem> {
        let StopTarget::Background(id) = target else {
            return None;
        };
        let left = self.left().into_iter();
        let mut left = left.filter(|left| left.id == *id && left.alive);
        Some(running_item(&left.next()?, Why::ProcessesLeft))
    }

    /// Stops the work below `parent`. `None` if there is no work with this id.
    pub(crate) fn stop_left(
        self: &Arc<Self>,
        id: &BackgroundId,
        cause: &Cause,
        parent: &Scope,
    ) -> Option<Stopping> {
        let order = StopOrder::new(Extent::Subtree, cause.clone());
        let mut inner = self.inner.lock();
        let left = inner.left.iter_mut().find(|left| left.work.id == *id)?;
        if let Some(scope) = &left.scope {
            return Some(Stopping::one(scope.stop(order), None));
        }
        let target = StopTarget::Background(id.clone());
        let work = left.work.clone();
        // Attached under the lock: of two concurrent stops the second joins the first.
        let scope = match take_up(&work, parent) {
            Ok(Some((scope, ended))) => {
                self.watch_end(id.clone(), &scope, ended);
                scope
            }
            Ok(None) => {
                drop(inner);
                return Some(self.nothing(&target, cause.clone(), StopOutcome::AlreadyEnded));
            }
            Err(why) => {
                drop(inner);
                return Some(self.cannot_stop(&work, cause, &why));
            }
        };
        left.scope = Some(scope.clone());
        drop(inner);
        Some(Stopping::one(scope.stop(order), None))
    }

    /// Keeps the state of the ended work for the log.
    fn watch_end(
        self: &Arc<Self>,
        id: BackgroundId,
        scope: &Scope,
        ended: impl Future<Output = ItemState> + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let closing = scope.clone();
        drop(scope.spawn_engine(async move {
            let state = ended.await;
            closing.close();
            let mut inner = shared.inner.lock();
            if let Some(left) = inner.left.iter_mut().find(|left| left.work.id == id) {
                left.ended = Some(state);
            }
            drop(inner);
            shared.changed.notify_one();
        }));
    }

    /// Answer for work that runs but cannot be verified.
    fn cannot_stop(&self, work: &FoundWork, cause: &Cause, why: &str) -> Stopping {
        let request = self.request(&StopTarget::Background(work.id.clone()), cause.clone());
        let mut item = running_item(work, Why::WatcherGone);
        let pid = work.stop_pid();
        let end = pid.map_or(String::new(), |pid| format!("; end it: kill {pid}"));
        item.note = Some(format!("{why}{end}").into());
        let findings = StopFindings {
            items: [item].into(),
            ..StopFindings::default()
        };
        Stopping::answered(Receipt::of_stop(request, findings))
    }
}

fn running_item(work: &FoundWork, why: Why) -> ReceiptItem {
    let state = ItemState::StillRunning { why };
    ReceiptItem::new(
        ItemKind::Background,
        work.id.as_str(),
        Arc::clone(&work.name),
        state,
    )
}

/// Attaches the work to a new scope, as one item of a receipt. Returns the scope and a future of the work's end.
/// `None`: the work has already ended. `Err`: reason for which the work runs and is left alone.
fn take_up(
    work: &FoundWork,
    parent: &Scope,
) -> Result<Option<(Scope, impl Future<Output = ItemState> + Send + use<>)>, String> {
    let main = work.process.as_ref().ok_or("the log names no process")?;
    let found = match reattach(main, work.keeper.as_ref(), work.marker.as_ref()) {
        Err(ReattachError::Gone) => return Ok(None),
        found => found.map_err(|error| error.to_string())?,
    };
    let unit = WorkSpec::new(ItemKind::Background, Arc::clone(&work.name)).id(work.id.as_str());
    let options = ScopeOptions {
        unit: Some(unit),
        ..ScopeOptions::default()
    };
    let scope = parent.child(work.id.as_str(), options);
    let scope = scope.map_err(|refused| refused.to_string())?;
    let spec = WorkSpec::new(ItemKind::Process, Arc::clone(&work.name));
    let process = scope.attach_process(spec, found);
    let process = process.map_err(|refused| refused.to_string())?;
    let ended = async move {
        let handle = process.handle();
        let verified = handle.wait_empty().await.ok();
        match (handle.strongest_signal(), verified, handle.stopped_after()) {
            (Some(how), Some(verified), Some(after)) => ItemState::Stopped {
                how,
                evidence: allstop_core::receipt::Evidence::verified(verified),
                after_ms: after.into(),
            },
            _ => ItemState::Unknown {
                how: How::Dropped,
                after_ms: None,
            },
        }
    };
    Ok(Some((scope, ended)))
}
