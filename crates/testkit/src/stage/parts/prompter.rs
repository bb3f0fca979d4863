//! Somebody who answers permission questions, with points.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_tools::{PermissionAnswer, PermissionQuestion, Prompter};
use futures::future::BoxFuture;

use super::PartWatch;

#[derive(Debug)]
pub(crate) struct WatchedPrompter {
    pub(crate) inner: Arc<dyn Prompter>,
    pub(crate) watch: PartWatch,
}

impl Prompter for WatchedPrompter {
    fn ask(&self, question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async move {
            let id: Arc<str> = question.call_id.as_str().into();
            let _alive = self
                .watch
                .witness
                .begin(ItemKind::Permission, Arc::clone(&id));
            let answer = self.inner.ask(question);
            self.watch.around("permission_question", id, answer).await
        })
    }
}
