//! Handlers in the same process: each request becomes a future.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::{AbortHandle, Aborted, abortable};
use futures::stream::FuturesUnordered;

use super::requests::{ExternalEvent, ExternalRequest, ExternalRequests};
use crate::tool::{ToolError, ToolOutput};

impl ExternalRequests {
    /// Runs the requests as concurrent futures, until the handler is disconnected. A panic causes an error result of
    /// the call that panicked, and does not affect other calls. The future of a cancelled call is dropped, and the
    /// cancellation is confirmed.
    ///
    /// # Cancel safety
    /// Dropping the future disconnects the handler permanently.
    pub async fn serve<F>(mut self, handle: impl Fn(ExternalRequest) -> F)
    where
        F: Future<Output = Result<ToolOutput, ToolError>>,
    {
        let handler = self.handler();
        let mut aborts: HashMap<_, AbortHandle> = HashMap::new();
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                event = self.next() => match event {
                    None => return,
                    Some(ExternalEvent::Call(request)) => {
                        let id = request.request_id;
                        let work = async { handle(request).await };
                        let (future, abort) = abortable(AssertUnwindSafe(work).catch_unwind());
                        aborts.insert(id, abort);
                        running.push(async move { (id, future.await) });
                    }
                    Some(ExternalEvent::Cancelled { request_id, .. }) => {
                        if let Some(abort) = aborts.get(&request_id) {
                            abort.abort();
                        }
                    }
                },
                Some((id, ended)) = running.next() => {
                    aborts.remove(&id);
                    // The result is not needed here: `PendingRequests` counts and reports late answers.
                    let _delivery = match ended {
                        Err(Aborted) => handler.confirm_cancelled(id),
                        Ok(Ok(answer)) => handler.answer(id, answer),
                        Ok(Err(_panic)) => {
                            let message = "the handler panicked".to_owned();
                            handler.answer(id, Err(ToolError::new(message)))
                        }
                    };
                }
            }
        }
    }
}
