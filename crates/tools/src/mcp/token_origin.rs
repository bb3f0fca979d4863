//! Origin of the access tokens of a connection over HTTP.

use std::sync::Arc;

use super::given_tokens::GivenTokens;
use super::login::AccessTokens;

/// Origin of the access tokens of a connection.
#[derive(Debug, Clone)]
pub(super) enum TokenOrigin {
    /// The credentials are configured, or the server needs none.
    Configured,
    /// A person logs in.
    Login(AccessTokens),
    /// A source gives the tokens.
    Given(Arc<GivenTokens>),
}
