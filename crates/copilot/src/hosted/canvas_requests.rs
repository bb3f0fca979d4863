//! Requests about canvases, which the server passes to the client that declares the canvas.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_jsonrpc::RpcError;
use allstop_scope::WorkSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::HostedSession;
use super::attached_clients::AttachedClient;
use super::canvases::{CanvasKey, CanvasProvider, ClientCanvases, OpenCanvas, ShownCanvas};
use super::client_work::ClientWork;

/// Request of a client to open a canvas.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CanvasOpening {
    extension_id: Option<String>,
    canvas_id: Arc<str>,
    instance_id: Arc<str>,
    input: Option<Value>,
}

impl HostedSession {
    /// Describes the canvases that the clients declare. If several clients with one identity declare a canvas, the
    /// declaration of the newest client counts.
    pub(crate) fn declared_canvases(&self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for attached in self.attached_clients().iter().rev() {
            let provider = json!(attached.canvases.provider(attached.client.id));
            for canvas in &attached.canvases.declared {
                let (mut info, of_provider) = (json!(canvas), provider.clone());
                if let (Value::Object(info), Value::Object(of_provider)) = (&mut info, of_provider)
                {
                    info.extend(of_provider);
                }
                let is_same = |other: &Value| {
                    ["extensionId", "canvasId"]
                        .iter()
                        .all(|key| other[key] == info[key])
                };
                if !all.iter().any(is_same) {
                    all.push(info);
                }
            }
        }
        all
    }

    /// Describes the open canvases.
    pub(crate) fn open_canvases(&self) -> Vec<OpenCanvas> {
        self.canvases.all()
    }

    /// Opens a canvas, or focuses the open canvas with this id.
    ///
    /// # Errors
    /// Returns an error if no single client declares the canvas, if the client refuses, or if the session is stopped.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; the client may still open the canvas.
    pub(crate) async fn open_canvas(&self, opening: CanvasOpening) -> Result<Value, RpcError> {
        let (client, key) = self.provider_for(&opening)?;
        let place = self.canvases.reserve(&key.instance_id)?;
        let mut more = Map::new();
        if let Some(input) = &opening.input {
            more.insert("input".to_owned(), input.clone());
        }
        let shown = self.ask_provider::<ShownCanvas>(&client, "canvas.open", &key, more);
        let canvas = OpenCanvas {
            shown: shown.await?,
            key,
            input: opening.input,
        };
        let data = json!(canvas);
        self.canvases.put(place, canvas);
        self.send_ephemeral("session.canvas.opened", data.clone());
        Ok(data)
    }

    /// Lets the client of an open canvas perform an action.
    ///
    /// # Errors
    /// Returns an error if the canvas is not open, if its client is gone or refuses, or if the session is stopped.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; the client may still perform the action.
    pub(crate) async fn invoke_canvas(
        &self,
        instance_id: &str,
        action: &str,
        input: Option<Value>,
    ) -> Result<Value, RpcError> {
        let key = self.canvases.find(instance_id)?;
        let client = self.client_of(&key).ok_or_else(|| {
            let message = format!("the client of the canvas {instance_id:?} has disconnected");
            RpcError::invalid_params(message)
        })?;
        let mut more = Map::new();
        more.insert("actionName".to_owned(), action.into());
        if let Some(input) = input {
            more.insert("input".to_owned(), input);
        }
        self.ask_provider(&client, "canvas.action.invoke", &key, more)
            .await
    }

    /// Closes an open canvas. The canvas stays open if its client refuses.
    ///
    /// # Errors
    /// Returns an error if the canvas is not open, if its client refuses, or if the session is stopped.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request; the client may still close the canvas.
    pub(crate) async fn close_canvas(&self, instance_id: &str) -> Result<(), RpcError> {
        let key = self.canvases.find(instance_id)?;
        // A client that has disconnected shows no canvas.
        if let Some(client) = self.client_of(&key) {
            let closing = self.ask_provider::<Value>(&client, "canvas.close", &key, Map::new());
            closing.await?;
        }
        self.canvases.remove(instance_id);
        self.send_ephemeral("session.canvas.closed", json!(key));
        Ok(())
    }

    /// Reports the canvases of a client that arrives, and keeps those of them that were open before a resume.
    pub(super) fn add_canvases(&self, canvases: &ClientCanvases) {
        if canvases.is_empty() {
            return;
        }
        for canvas in &canvases.open {
            let id = &canvas.key.instance_id;
            let is_known = self.canvases.find(id).is_ok();
            let has_client = self.client_of(&canvas.key).is_some();
            // A canvas beyond the limit can be opened again after others were closed.
            if !is_known
                && has_client
                && let Ok(place) = self.canvases.reserve(id)
            {
                self.canvases.put(place, canvas.clone());
            }
        }
        self.report_canvases();
    }

    /// Reports the open canvases that are without a client after the departure of this client.
    pub(super) fn remove_canvases(&self, gone: &AttachedClient) {
        if gone.canvases.is_empty() {
            return;
        }
        for canvas in self.canvases.all() {
            if gone.provides(&canvas.key) && self.client_of(&canvas.key).is_none() {
                self.send_ephemeral("session.canvas.unavailable", json!(canvas.key));
            }
        }
        self.report_canvases();
    }

    fn report_canvases(&self) {
        let data = json!({ "canvases": self.declared_canvases() });
        self.send_ephemeral("session.canvas.registry_changed", data);
    }

    /// Returns the client that provides an open canvas.
    fn client_of(&self, key: &CanvasKey) -> Option<AttachedClient> {
        let clients = self.attached_clients();
        clients.into_iter().rfind(|client| client.provides(key))
    }

    /// Returns the client that declares a canvas.
    fn provider_for(
        &self,
        opening: &CanvasOpening,
    ) -> Result<(AttachedClient, CanvasKey), RpcError> {
        let canvas_id = &opening.canvas_id;
        let clients = self.attached_clients();
        let mut found: Option<(AttachedClient, CanvasProvider)> = None;
        for attached in clients.into_iter().rev() {
            let provider = attached.canvases.provider(attached.client.id);
            let is_meant = opening.extension_id.as_ref();
            let is_meant = is_meant.is_none_or(|id| **id == *provider.id);
            if !is_meant || !attached.canvases.declares(canvas_id) {
                continue;
            }
            match &found {
                None => found = Some((attached, provider)),
                Some((_, first)) if first.id == provider.id => {}
                Some(_) => {
                    return Err(RpcError::invalid_params(format!(
                        "several clients declare the canvas {canvas_id:?}: set `extensionId`"
                    )));
                }
            }
        }
        let (attached, provider) = found.ok_or_else(|| {
            RpcError::invalid_params(format!("no client declares the canvas {canvas_id:?}"))
        })?;
        let key = CanvasKey {
            extension_id: provider.id,
            extension_name: provider.name,
            canvas_id: Arc::clone(canvas_id),
            instance_id: Arc::clone(&opening.instance_id),
        };
        Ok((attached, key))
    }

    /// Sends a request about a canvas to its client. The request is work of the session, so a receipt lists it.
    async fn ask_provider<T: DeserializeOwned>(
        &self,
        client: &AttachedClient,
        method: &str,
        key: &CanvasKey,
        more: Map<String, Value>,
    ) -> Result<T, RpcError> {
        let mut params = more;
        params.insert("sessionId".to_owned(), json!(self.id()));
        params.insert("extensionId".to_owned(), json!(key.extension_id));
        params.insert("canvasId".to_owned(), json!(key.canvas_id));
        params.insert("instanceId".to_owned(), json!(key.instance_id));
        let context = json!({ "workingDirectory": self.folder() });
        params.insert("session".to_owned(), context);
        let host = self.session.background_host().await;
        let scope = host.map_err(|error| failed(&error))?.scope();
        let work = WorkSpec::new(ItemKind::Remote, method.to_owned());
        let work = ClientWork::register(&scope, work).map_err(|refused| failed(&refused))?;
        let answer = tokio::select! {
            biased;
            () = scope.stopped() => return Err(failed(&"the session is being stopped")),
            answer = client.request(method, &params) => answer,
        };
        work.answered();
        answer.map_err(|error| failed(&error))
    }
}

impl AttachedClient {
    fn provides(&self, key: &CanvasKey) -> bool {
        let provider = self.canvases.provider(self.client.id);
        provider.id == key.extension_id && self.canvases.declares(&key.canvas_id)
    }
}

fn failed(error: &impl std::fmt::Display) -> RpcError {
    RpcError::internal_error(error.to_string())
}
