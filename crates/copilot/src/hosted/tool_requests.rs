//! Requests for the tools of the clients, which all clients of the session get.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::WorkSpec;

use super::client_tools::{GenerationEvent, ToolGeneration};
use super::{DeclaredTool, HostedSession};
use crate::translate::HostEvent;

impl HostedSession {
    /// Forwards the requests for the clients' tools to all clients, until the tools are closed or the session is
    /// closed.
    pub(super) fn forward(self: &Arc<Self>, mut generation: ToolGeneration) {
        let (tools, events) = (Arc::clone(&self.tools), self.host_events.clone());
        let no_more_calls = self.no_more_calls.clone();
        let spec = WorkSpec::new(ItemKind::Future, "requests of client tools");
        let spawned = self.scope.spawn(spec, move |cx| async move {
            tokio::select! {
                biased;
                _stopped = cx.stopped_at("requests of client tools") => {}
                // This branch precedes the branch of `no_more_calls`. Therefore handlers are still notified of the
                // calls that the end of the session has cancelled.
                () = async {
                    while let Some(event) = generation.next(&tools).await {
                        let event = match event {
                            GenerationEvent::Requested(call) => HostEvent::ExternalRequested(call),
                            GenerationEvent::Cancelled(request_id) => {
                                HostEvent::ExternalCompleted {
                                    request_id,
                                    is_cancelled: true,
                                }
                            }
                        };
                        // If no client is attached, the request waits for a client that attaches later.
                        drop(events.send(event));
                    }
                } => {}
                () = no_more_calls.cancelled() => {}
            }
        });
        drop(spawned);
    }

    /// Declares the tools of a client that resumes the session.
    pub(crate) fn declare(self: &Arc<Self>, declared: Vec<DeclaredTool>) {
        if let Some(generation) = self.tools.declare(declared) {
            self.forward(generation);
        }
    }
}
