//! The server: translates the calls of the tools into operations of the task manager. Each command is one task.

use std::path::Path;
use std::sync::Arc;

use allstop_task::TaskManager;
use axum::http::Extensions;
use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use crate::calls::{ClientCall, call};
use crate::catalog;
use crate::confirmed_cancel::{EXTENSION, confirmation};
use crate::executor::CommandConfig;
use crate::failure::CallFailure;
use crate::open_requests::OpenRequests;
use crate::wrong_request::wrong_request;

/// Owner of the commands of a client on standard input and output, or on a port without authentication.
const LOCAL_OWNER: &str = "local";

/// Name of the authenticated sender of an HTTP request, in the extensions of the request. It owns its commands: no other
/// sender finds or stops them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOwner(pub Arc<str>);

impl CommandOwner {
    /// The owner in the extensions of an HTTP request, or the owner for a request without authentication.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let owner = extensions.get::<Self>().cloned();
        owner.unwrap_or_else(|| Self(LOCAL_OWNER.into()))
    }
}

/// Serves the tools. Clones share one task manager.
#[derive(Debug, Clone)]
pub struct CommandServer {
    manager: TaskManager,
    /// Folder of commands that name none.
    folder: Arc<Path>,
    tools: Arc<[Tool]>,
    version: &'static str,
    /// Requests of the connection. `None` over HTTP, where no cancellation is confirmed.
    requests: Option<OpenRequests>,
}

impl CommandServer {
    /// Creates a server whose tasks this manager runs. The executor of the manager is a
    /// [`CommandExecutor`](crate::CommandExecutor) with this configuration. `version` is the version for the clients.
    pub fn new(manager: TaskManager, config: &CommandConfig, version: &'static str) -> Self {
        Self {
            manager,
            folder: config.folder.as_path().into(),
            tools: catalog::tools().into(),
            version,
            requests: None,
        }
    }

    /// Confirms the cancellations of calls in this table.
    pub(crate) fn confirming(self, requests: OpenRequests) -> Self {
        Self {
            requests: Some(requests),
            ..self
        }
    }
}

impl ServerHandler for CommandServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        if self.requests.is_some() {
            let extension = (EXTENSION.to_owned(), JsonObject::new());
            capabilities.extensions = Some([extension].into());
        }
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("allstop", self.version);
        info.with_instructions(catalog::INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.tools.iter().find(|tool| tool.name == request.name);
        let Some(tool) = tool else {
            let message = format!("unknown tool `{}`", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        // Messages on pipes have no HTTP request.
        let no_request = Extensions::default();
        let parts = context.extensions.get::<Parts>();
        let of_http = parts.map_or(&no_request, |parts| &parts.extensions);
        let requests = self.requests.as_ref();
        let requests = requests.filter(|_| tool.name == catalog::EXEC);
        let call_of_client = ClientCall {
            manager: &self.manager,
            folder: &self.folder,
            owner: CommandOwner::of(of_http).0,
            session_end: of_http.get().cloned().unwrap_or_default(),
            confirmed: requests.and_then(|requests| requests.begin(&context)),
            context: &context,
        };
        let arguments: JsonObject = request.arguments.unwrap_or_default();
        let called = call(&call_of_client, &tool.name, arguments).await;
        match called {
            Err(CallFailure::Cancelled(text)) => Err(confirmation(text)),
            called => Ok(called.unwrap_or_else(CallFailure::into_result).into()),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(wrong_request(request))
    }
}
