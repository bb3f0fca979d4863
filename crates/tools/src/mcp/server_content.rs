//! Resources and prompts of MCP servers, which a person puts into a message.
//!
//! The model does not request them, so no call of a turn exists. Each request has a time limit, and dropping it cancels it
//! at the server.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Images;
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, JsonObject, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ResourceContents, Role, ServerCapabilities,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use tokio::time::timeout;

use super::convert::content_of_blocks;
use super::limits::PAGES_MAX;
use super::server::McpServer;
use super::state::ServerState;

/// Time limit of a request, because a person waits for the answer. The limit includes the start of the server.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// Maximum number of listed resources or prompts of one server. A person finds one of them by its beginning.
const LISTED_MAX: usize = 1_000;

/// Maximum length of the text of a resource or a prompt, in bytes: about sixteen thousand tokens.
pub const SERVER_CONTENT_BYTES_MAX: usize = 64 * 1024;

/// A prompt of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpPrompt {
    /// Name at the server.
    pub name: String,
    /// Names of its arguments, and true for each that the prompt needs.
    pub arguments: Vec<(String, bool)>,
}

/// Content of a resource or of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpContent {
    /// The text, with a note if a part is left out.
    pub text: String,
    /// The images.
    pub images: Images,
}

/// Failure of a request for a resource or a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server `{server}` {why}")]
pub struct McpContentError {
    /// Name of the server.
    pub server: Arc<str>,
    /// Reason, for people.
    pub why: String,
}

impl McpServer {
    /// Addresses of the resources that the server lists. Empty if it has none.
    ///
    /// # Errors
    /// If the server is not available or does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn resources(&self) -> Result<Vec<String>, McpContentError> {
        self.within_limit(async |peer| {
            let mut found = Vec::new();
            let mut page = None;
            for _ in 0..PAGES_MAX {
                if !offers(&peer, |capabilities| capabilities.resources.is_some()) {
                    break;
                }
                let listed = peer.list_resources(page).await.map_err(failed)?;
                found.extend(listed.resources.into_iter().map(|resource| resource.uri));
                found.truncate(LISTED_MAX);
                page = next_page(listed.next_cursor);
                if page.is_none() {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// If the server is not available or does not return the resource.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn resource(&self, uri: &str) -> Result<McpContent, McpContentError> {
        self.within_limit(async |peer| {
            if !offers(&peer, |capabilities| capabilities.resources.is_some()) {
                return Err("has no resources".to_owned());
            }
            let params = ReadResourceRequestParams::new(uri);
            let read = peer.read_resource_once(params).await.map_err(failed)?;
            let ReadResourceResponse::Complete(read) = read else {
                return Err(ASKS.to_owned());
            };
            let blocks = read.contents.into_iter().map(without_address);
            Ok(bounded(&blocks.collect::<Vec<_>>()))
        })
        .await
    }

    /// The prompts that the server lists. Empty if it has none.
    ///
    /// # Errors
    /// If the server is not available or does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn prompts(&self) -> Result<Vec<McpPrompt>, McpContentError> {
        self.within_limit(async |peer| {
            let mut found = Vec::new();
            let mut page = None;
            for _ in 0..PAGES_MAX {
                if !offers(&peer, |capabilities| capabilities.prompts.is_some()) {
                    break;
                }
                let listed = peer.list_prompts(page).await.map_err(failed)?;
                found.extend(listed.prompts.into_iter().map(|prompt| {
                    let arguments = prompt.arguments.unwrap_or_default().into_iter();
                    McpPrompt {
                        name: prompt.name,
                        arguments: arguments
                            .map(|argument| (argument.name, argument.required == Some(true)))
                            .collect(),
                    }
                }));
                found.truncate(LISTED_MAX);
                page = next_page(listed.next_cursor);
                if page.is_none() {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    /// Gets the text of a prompt with these values of its arguments.
    ///
    /// # Errors
    /// If the server is not available or does not return the prompt.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: Vec<(String, String)>,
    ) -> Result<McpContent, McpContentError> {
        self.within_limit(async |peer| {
            let mut params = GetPromptRequestParams::new(name);
            let values = arguments
                .into_iter()
                .map(|(name, value)| (name, value.into()));
            params.arguments = Some(values.collect::<JsonObject>());
            let got = peer.get_prompt_once(params).await.map_err(failed)?;
            let GetPromptResponse::Complete(got) = got else {
                return Err(ASKS.to_owned());
            };
            let mut blocks = Vec::new();
            for message in got.messages {
                // A message of a person contains the whole prompt, so answers of the model in it are marked.
                if message.role == Role::Assistant {
                    blocks.push(ContentBlock::text("[assistant]"));
                }
                blocks.push(message.content);
            }
            Ok(bounded(&blocks))
        })
        .await
    }

    /// Carries out requests to the server within the time limit.
    async fn within_limit<T>(
        &self,
        requests: impl AsyncFnOnce(Peer<RoleClient>) -> Result<T, String>,
    ) -> Result<T, McpContentError> {
        let requested = async {
            match self.settled().await {
                ServerState::Ready(connection) => requests(connection.peer.clone()).await,
                other => {
                    // The next attempt may succeed.
                    self.wake.notify_one();
                    Err(format!("is {}", other.public()))
                }
            }
        };
        let done = timeout(REQUEST_MAX, requested).await;
        let done =
            done.unwrap_or_else(|_elapsed| Err(format!("did not answer in {REQUEST_MAX:?}")));
        done.map_err(|why| McpContentError {
            server: Arc::clone(self.name()),
            why,
        })
    }
}

/// Reason of a failed request that the server continues with a question. Only a call of the model can ask it.
const ASKS: &str = "asks for more information first, which only a call of a tool can give";

fn failed(error: ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("refused it: {}", error.message),
        other => format!("did not return it: {other}"),
    }
}

fn offers(peer: &Peer<RoleClient>, has: impl Fn(&ServerCapabilities) -> bool) -> bool {
    peer.peer_info().is_some_and(|info| has(&info.capabilities))
}

fn next_page(cursor: Option<String>) -> Option<PaginatedRequestParams> {
    cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)))
}

/// Content of a resource as a block. The message already names the resource.
fn without_address(contents: ResourceContents) -> ContentBlock {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => ContentBlock::text(text),
        other => ContentBlock::resource(other),
    }
}

fn bounded(blocks: &[ContentBlock]) -> McpContent {
    let (mut text, images) = content_of_blocks(blocks);
    let len = text.len();
    if len > SERVER_CONTENT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SERVER_CONTENT_BYTES_MAX));
        let left_out = len - text.len();
        let note = format!("\n[cut: {left_out} of {len} bytes are left out]");
        text.push_str(&note);
    }
    McpContent { text, images }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_content_is_cut_and_the_cut_is_named() {
        let whole = "é".repeat(SERVER_CONTENT_BYTES_MAX);
        let cut = bounded(&[ContentBlock::text(whole)]);
        assert!(cut.text.len() < SERVER_CONTENT_BYTES_MAX + 100);
        assert!(cut.text.ends_with("65536 of 131072 bytes are left out]"));
        assert_eq!(bounded(&[ContentBlock::text("a")]).text, "a");
    }
}
