//! A handler in the same process: requests become futures.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::{AbortHandle, Aborted, abortable};
use futures::stream::FuturesUnordered;

use super::requests::{ExternalEvent, ExternalRequest, ExternalRequests};
use crate::tool::{ToolError, ToolOutput};

impl ExternalRequests {
    /// Serves the requests with futures of this process, side by side, until the handler is disconnected. A panic is an
    /// error result of its call alone; a cancelled call's future is dropped, and that is confirmed.
    ///
    /// # Cancel safety
    /// Dropping it says that the handler is gone for good.
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
                    // What became of it is the call's to know.
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
