//! A hook with points.

use std::sync::Arc;

use allstop_agent::{Hook, HookCx, HookEvent, HookVerdict};
use allstop_core::receipt::ItemKind;
use futures::future::BoxFuture;

use super::PartWatch;

#[derive(Debug)]
pub(crate) struct WatchedHook {
    pub(crate) inner: Arc<dyn Hook>,
    pub(crate) watch: PartWatch,
}

impl Hook for WatchedHook {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn wants(&self, event: &HookEvent) -> bool {
        self.inner.wants(event)
    }

    fn on(&self, cx: &HookCx, event: HookEvent) -> BoxFuture<'static, HookVerdict> {
        let (watch, moment) = (self.watch.clone(), event.name());
        let name = Arc::clone(self.inner.name());
        let hearing = self.inner.on(cx, event);
        Box::pin(async move {
            let _alive = watch.witness.begin(ItemKind::Hook, name);
            watch.around("hook", moment.into(), hearing).await
        })
    }
}
