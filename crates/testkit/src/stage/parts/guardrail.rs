//! A guardrail with points.

use std::sync::Arc;

use allstop_agent::{Guardrail, GuardrailStage, GuardrailVerdict, HookCx};
use allstop_core::receipt::ItemKind;
use futures::future::BoxFuture;

use super::PartWatch;

#[derive(Debug)]
pub(crate) struct WatchedGuardrail {
    pub(crate) inner: Arc<dyn Guardrail>,
    pub(crate) watch: PartWatch,
}

impl Guardrail for WatchedGuardrail {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn wants(&self, stage: GuardrailStage) -> bool {
        self.inner.wants(stage)
    }

    fn check(
        &self,
        cx: &HookCx,
        stage: GuardrailStage,
        text: Arc<str>,
    ) -> BoxFuture<'static, GuardrailVerdict> {
        let watch = self.watch.clone();
        let name = Arc::clone(self.inner.name());
        let checking = self.inner.check(cx, stage, text);
        Box::pin(async move {
            let _alive = watch.witness.begin(ItemKind::Guardrail, name);
            watch
                .around(
                    "guardrail",
                    format!("{stage:?}").to_lowercase().into(),
                    checking,
                )
                .await
        })
    }
}
