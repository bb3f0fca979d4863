//! Models: of a provider, or a function of Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allstop::model::{self, ModelErrorKind, OutsideWork, ProviderModel, ProviderOptions};
use allstop::{Model, ModelError, ModelRequest, Reply};
use futures::channel::oneshot;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json;
use crate::mailbox::{Callback, Mailbox, MessageBody};

/// Model of an agent, as Python writes it.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ModelDescription {
    FromEnv {
        name: String,
        base_url: Option<String>,
    },
    Function {
        name: Arc<str>,
    },
}

/// Creates a model. `begin` receives each call of a function, and `cancel` the key of a call that a stop has ended.
pub(crate) fn create(
    mailbox: Arc<Mailbox>,
    (description, begin, cancel): (String, Py<PyAny>, Py<PyAny>),
) -> PyResult<Arc<dyn Model>> {
    match json::value(&description)? {
        ModelDescription::FromEnv { name, base_url } => {
            let options = ProviderOptions::from_env();
            let options = match base_url {
                Some(url) => options.base_url(url),
                None => options,
            };
            let model = ProviderModel::new(&name, options);
            Ok(Arc::new(model.map_err(|error| {
                PyValueError::new_err(error.to_string())
            })?))
        }
        ModelDescription::Function { name } => {
            let function = Arc::new(ModelFunction {
                mailbox,
                begin: Arc::new(begin),
                cancel: Arc::new(cancel),
                keys: AtomicU64::new(0),
            });
            let answer = move |request| Arc::clone(&function).answer(request);
            Ok(Arc::new(model::from_fn(name, answer)))
        }
    }
}

/// A model that is a function of Python.
struct ModelFunction {
    mailbox: Arc<Mailbox>,
    begin: Callback,
    cancel: Callback,
    keys: AtomicU64,
}

impl ModelFunction {
    async fn answer(self: Arc<Self>, request: ModelRequest) -> Result<Reply, ModelError> {
        let (answer, answered) = oneshot::channel();
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let call = PythonModelCall {
            key,
            request: request_text(&request),
            state: Mutex::new(Some((request.probe.begin_outside_work(), answer))),
        };
        let failed = |message: String| ModelError::new(ModelErrorKind::Invalid, message);
        self.mailbox
            .post(&self.begin, MessageBody::ModelCall(call))
            .map_err(|error| failed(error.to_string()))?;
        let mut cancel = CancelOnDrop {
            function: &self,
            key: Some(key),
        };
        let answer = answered.await;
        cancel.key = None;
        match answer {
            Ok(answer) => answer.map_err(failed),
            Err(_) => Err(failed("the model ended without an answer".to_owned())),
        }
    }
}

/// Cancels the task of a call when the future of the call is dropped.
struct CancelOnDrop<'a> {
    function: &'a ModelFunction,
    key: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let function = self.function;
            function
                .mailbox
                .answer(&function.cancel, MessageBody::Key(key));
        }
    }
}

fn request_text(request: &ModelRequest) -> String {
    let tool = |tool: &model::ToolDeclaration| json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema});
    let messages: Vec<&allstop::Message> = request.messages.iter().map(|one| &**one).collect();
    json::text(&json!({
        "system": request.system,
        "messages": messages,
        "tools": request.tools.iter().map(tool).collect::<Vec<_>>(),
        "user_text": request.user_text(),
        "tool_results": request.tool_results(),
    }))
}

/// Reply of a function, as Python writes it.
#[derive(Debug, Deserialize)]
struct ReplyDescription {
    text: String,
    calls: Vec<(String, Value)>,
}

type ModelAnswer = Result<Reply, String>;

/// One call. The call counts as open until it is finished or dropped.
#[pyclass(frozen, name = "ModelCall")]
pub(crate) struct PythonModelCall {
    #[pyo3(get)]
    key: u64,
    /// The request as JSON.
    #[pyo3(get)]
    request: String,
    state: Mutex<Option<(OutsideWork, oneshot::Sender<ModelAnswer>)>>,
}

#[pymethods]
impl PythonModelCall {
    /// Answers the call with a reply as JSON.
    fn answer(&self, reply: &str) -> PyResult<()> {
        let description: ReplyDescription = json::value(reply)?;
        let reply = description
            .calls
            .into_iter()
            .fold(Reply::text(description.text), |reply, (tool, arguments)| {
                reply.call(tool, arguments)
            });
        self.finish(Ok(reply));
        Ok(())
    }

    /// Fails the call.
    fn fail(&self, message: String) {
        self.finish(Err(message));
    }
}

impl PythonModelCall {
    fn finish(&self, answer: ModelAnswer) {
        if let Some((open, sender)) = self.state.lock().take() {
            drop(open);
            // The receiver was dropped if a stop has ended the call.
            let _stopped = sender.send(answer);
        }
    }
}
