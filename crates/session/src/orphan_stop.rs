//! Checks and stops of orphaned work.
//!
//! Orphaned work is background work that runs without this process. No scope of the session contains this work, because
//! the end of the session must not stop it without a request. A stop moves the work into a scope, and then proceeds as
//! for all other work.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_process::{ReattachError, reattach};
use allstop_scope::{Scope, ScopeOptions, WorkSpec};

use crate::inner::{LockedState, SessionInner};
use crate::orphan_scan::{self, OrphanedWork};

/// Orphaned work that a stop has taken into scopes, and receipt items for work that the stop could not take.
#[derive(Default)]
pub(crate) struct AttachedOrphans {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) items: Vec<ReceiptItem>,
}

impl SessionInner {
    /// Background work that runs without this process, according to the last check.
    pub(crate) fn orphaned_work(&self) -> Vec<OrphanedWork> {
        self.state.lock().orphans.works()
    }

    /// Checks the orphaned work again. Skips ended work, since a check reads all of `/proc`.
    pub(crate) async fn check_orphans(&self, scope: &Scope) -> Vec<OrphanedWork> {
        let works = orphan_scan::check_alive(scope, self.orphaned_work()).await;
        let mut state = self.state.lock();
        for gone in works.iter().filter(|work| !work.alive) {
            if let Some(orphan) = state.orphans.find(&gone.id) {
                orphan.work.alive = false;
            }
        }
        works
    }

    /// Takes running work into a scope below `parent`. From then on a stop of that scope ends the work.
    pub(crate) fn attach_orphan(
        self: &Arc<Self>,
        state: &mut LockedState,
        id: &BackgroundId,
        parent: &Scope,
        attached: &mut AttachedOrphans,
    ) {
        let Some(orphan) = state.orphans.find(id) else {
            return;
        };
        if let Some(scope) = &orphan.scope {
            attached.scopes.push(scope.clone());
            return;
        }
        // Runs under the lock of the session, so the second of two concurrent stops joins the first.
        match attach(&orphan.work, parent) {
            Ok(Some((scope, ended))) => {
                self.watch_end(id.clone(), &scope, ended);
                orphan.scope = Some(scope.clone());
                attached.scopes.push(scope);
            }
            Ok(None) => {}
            Err(why) => attached.items.push(unattached_item(&orphan.work, &why)),
        }
    }

    /// Keeps the final state of the work for the log.
    fn watch_end(
        self: &Arc<Self>,
        id: BackgroundId,
        scope: &Scope,
        ended: impl Future<Output = ItemState> + Send + 'static,
    ) {
        let inner = Arc::clone(self);
        let closing = scope.clone();
        drop(scope.spawn_engine(async move {
            let final_state = ended.await;
            closing.close();
            let mut state = inner.state.lock();
            if let Some(orphan) = state.orphans.find(&id) {
                orphan.work.alive = final_state.breaks_quiet();
                orphan.ended = Some(final_state);
            }
            drop(state);
            inner.changed.notify_one();
        }));
    }
}

/// Receipt item for work that may still run, and that a stop leaves alone because the work could not be moved into a
/// scope.
fn unattached_item(work: &OrphanedWork, why: &str) -> ReceiptItem {
    let pid = work.stop_pid();
    let end = pid.map_or(String::new(), |pid| format!("; end it: kill {pid}"));
    let mut item = work.running_item();
    if let ItemState::StillRunning { why } = &mut item.state {
        *why = NotStoppedReason::WatcherGone;
    }
    item.note = Some(format!("{why}{end}").into());
    item
}

/// Attaches the work to a new scope, as one item of a receipt. Returns the scope and a future that waits for the end of
/// the work, or `None` if the work has already ended. `Err` contains the reason why the running work is left alone.
fn attach(
    work: &OrphanedWork,
    parent: &Scope,
) -> Result<Option<(Scope, impl Future<Output = ItemState> + Send + use<>)>, String> {
    let main = work.process.as_ref().ok_or("the log names no process")?;
    let found = match reattach(main, work.keeper.as_ref(), work.marker.as_ref()) {
        Err(ReattachError::Gone) => return Ok(None),
        found => found.map_err(|error| error.to_string())?,
    };
    let unit = WorkSpec::new(ItemKind::Background, Arc::clone(&work.name)).id(work.id.as_str());
    let options = ScopeOptions::default().unit(unit);
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
                how: EndMethod::Dropped,
                after_ms: None,
            },
        }
    };
    Ok(Some((scope, ended)))
}
