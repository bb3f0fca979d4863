//! Replacement of the access token of a call that the server has refused.

use super::call_answer::RefusedCall;
use super::given_tokens::{AskedReasons, GivenTokens};
use super::required_pages::RequiredPages;
use crate::tool::{ToolError, ToolInvocation};

/// Error of one request of a call.
pub(super) enum CallRequestError {
    Failed(ToolError),
    NeedsToken(Box<RefusedCall>),
    NeedsPages(RequiredPages),
}

impl From<ToolError> for CallRequestError {
    fn from(error: ToolError) -> Self {
        Self::Failed(error)
    }
}

/// Replaces the token that the server has refused. No request of the call is open meanwhile.
///
/// # Cancel safety
/// Dropping the future withdraws the request for a token.
pub(super) async fn replace_token(
    tokens: Option<&GivenTokens>,
    refused: &RefusedCall,
    asked: &mut AskedReasons,
    invocation: &ToolInvocation,
) -> Result<(), ToolError> {
    let replace = async {
        match tokens {
            Some(tokens) => tokens.replace(&refused.refusal, asked).await,
            None => false,
        }
    };
    tokio::select! {
        biased;
        cause = invocation.scope.stopped_at("mcp token") => {
            Err(ToolError::new(format!("stopped: {cause}; the call was not begun")))
        }
        is_replaced = replace => if is_replaced {
            Ok(())
        } else {
            Err(ToolError::new(format!("the server is not available: {}", refused.why)))
        }
    }
}
