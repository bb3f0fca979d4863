//! Canvases: views of a program, which a client declares and shows.

use std::collections::HashSet;
use std::sync::Arc;

use allstop_jsonrpc::RpcError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connection::ClientId;

/// Maximum number of open canvases of a session, many more than a person looks at.
const OPEN_MAX: usize = 256;

/// A canvas as declared by a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeclaredCanvas {
    #[serde(rename(deserialize = "id", serialize = "canvasId"))]
    canvas_id: Arc<str>,
    display_name: Arc<str>,
    description: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    icon: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actions: Option<Vec<Value>>,
}

/// Identity of a client that declares canvases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CanvasProvider {
    #[serde(rename(deserialize = "id", serialize = "extensionId"))]
    pub(super) id: Arc<str>,
    #[serde(rename(deserialize = "name", serialize = "extensionName"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Arc<str>>,
}

/// Canvases of one client, in the parameters of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCanvases {
    pub declared: Vec<DeclaredCanvas>,
    /// `None` for the identity of the connection.
    pub provider: Option<CanvasProvider>,
    /// Canvases that were open before the client resumed the session.
    pub open: Vec<OpenCanvas>,
}

impl ClientCanvases {
    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    pub(super) fn provider(&self, client: ClientId) -> CanvasProvider {
        let of_connection = || CanvasProvider {
            id: format!("connection:{}", client.0).into(),
            name: None,
        };
        self.provider.clone().unwrap_or_else(of_connection)
    }

    pub(super) fn declares(&self, canvas_id: &str) -> bool {
        let mut declared = self.declared.iter();
        declared.any(|canvas| *canvas.canvas_id == *canvas_id)
    }
}

/// A canvas in a session, with the client that declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CanvasKey {
    pub extension_id: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_name: Option<Arc<str>>,
    pub canvas_id: Arc<str>,
    pub instance_id: Arc<str>,
}

/// An open canvas.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OpenCanvas {
    #[serde(flatten)]
    pub(super) key: CanvasKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<Value>,
    #[serde(flatten)]
    pub(super) shown: ShownCanvas,
}

/// Answer of a client that has opened a canvas.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ShownCanvas {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Open canvases of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenCanvases(Mutex<CanvasPlaces>);

#[derive(Debug, Default)]
struct CanvasPlaces {
    /// Canvases in the order in which they were opened.
    open: Vec<OpenCanvas>,
    /// Ids of the canvases that their clients are opening. An id occurs once for each request.
    opening: Vec<Arc<str>>,
}

/// Reserved place of a canvas that its client is opening. Dropping it releases the place.
#[derive(Debug)]
pub(super) struct CanvasPlace<'a> {
    all: &'a OpenCanvases,
    instance_id: Arc<str>,
}

impl CanvasPlaces {
    fn is_open(&self, instance_id: &str) -> bool {
        let mut open = self.open.iter();
        open.any(|canvas| *canvas.key.instance_id == *instance_id)
    }

    /// True if the canvas has a place, or another canvas has room.
    fn has_room(&self, instance_id: &str) -> bool {
        let opening: HashSet<&Arc<str>> = self.opening.iter().collect();
        let is_new = |id: &&&Arc<str>| !self.is_open(id);
        let taken = self.open.len() + opening.iter().filter(is_new).count();
        let is_known = self.is_open(instance_id) || opening.iter().any(|id| ***id == *instance_id);
        is_known || taken < OPEN_MAX
    }
}

impl Drop for CanvasPlace<'_> {
    fn drop(&mut self) {
        let opening = &mut self.all.0.lock().opening;
        if let Some(at) = opening.iter().position(|id| *id == self.instance_id) {
            opening.swap_remove(at);
        }
    }
}

impl OpenCanvases {
    pub(super) fn all(&self) -> Vec<OpenCanvas> {
        self.0.lock().open.clone()
    }

    pub(super) fn find(&self, instance_id: &str) -> Result<CanvasKey, RpcError> {
        let places = self.0.lock();
        let mut open = places.open.iter();
        let found = open.find(|canvas| *canvas.key.instance_id == *instance_id);
        found.map(|canvas| canvas.key.clone()).ok_or_else(|| {
            RpcError::invalid_params(format!("no canvas is open with the id {instance_id:?}"))
        })
    }

    /// Reserves a place for a canvas.
    ///
    /// # Errors
    /// Returns an error if the session has too many open canvases.
    pub(super) fn reserve(&self, instance_id: &Arc<str>) -> Result<CanvasPlace<'_>, RpcError> {
        let mut places = self.0.lock();
        if !places.has_room(instance_id) {
            let message =
                format!("{OPEN_MAX} canvases are open in the session: close some of them");
            return Err(RpcError::overloaded(message));
        }
        places.opening.push(Arc::clone(instance_id));
        Ok(CanvasPlace {
            all: self,
            instance_id: Arc::clone(instance_id),
        })
    }

    /// Adds a canvas in its place, or replaces the canvas with this id.
    pub(super) fn put(&self, place: CanvasPlace<'_>, canvas: OpenCanvas) {
        {
            let open = &mut self.0.lock().open;
            let at = open
                .iter()
                .position(|other| other.key.instance_id == canvas.key.instance_id);
            match at {
                Some(at) => open[at] = canvas,
                None => open.push(canvas),
            }
        }
        drop(place);
    }

    pub(super) fn remove(&self, instance_id: &str) {
        let open = &mut self.0.lock().open;
        open.retain(|canvas| *canvas.key.instance_id != *instance_id);
    }
}
