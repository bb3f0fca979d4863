//! The login of a person at an MCP server, with OAuth 2.1.
//!
//! A server that needs a login refuses the first request and names its authorization server. The person logs in with a
//! browser ([`McpLogin`]). The tokens are kept in a file of the user ([`token_file`]), and each request reads the access
//! token from this file, so a login takes effect in all processes. An access token is renewed before its end, and once if
//! the server refuses it.
//!
//! A renewal replaces the tokens at the authorization server before they are stored here. Therefore it runs as work of
//! the connection, which the end of a call does not drop.

mod access;
mod error;
mod loopback;
mod revocation;
mod session;
mod token_file;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

pub use error::McpLoginError;
pub use revocation::{ForgottenLogin, forget_login};
pub use session::{LoginClient, LoginOptions, McpLogin};

pub(super) use access::AccessTokens;
pub(super) use token_file::LoginTokenFile;

/// Interval at which a refused server looks for a new login. People do not notice the delay, and the look costs little.
const LOGIN_POLL: Duration = Duration::from_secs(1);

/// The login at one server.
#[derive(Debug)]
pub(super) struct ServerLogin {
    pub(super) server: Arc<str>,
    pub(super) url: Arc<str>,
    pub(super) file: LoginTokenFile,
    /// The last refusal of the server, which names the authorization server and the rights.
    challenge: Mutex<Option<Arc<str>>>,
}

impl ServerLogin {
    pub(super) fn new(server: &Arc<str>, url: &Arc<str>, folder: &Path) -> Self {
        Self {
            server: Arc::clone(server),
            url: Arc::clone(url),
            file: LoginTokenFile::new(folder, server, url),
            challenge: Mutex::default(),
        }
    }

    pub(super) fn challenged(&self, challenge: &str) {
        *self.challenge.lock() = Some(challenge.into());
    }

    pub(super) fn challenge(&self) -> Option<Arc<str>> {
        self.challenge.lock().clone()
    }

    /// Resolves when the tokens have changed, for example because the person has logged in.
    pub(super) async fn changed(&self) {
        let before = self.file.version();
        while self.file.version() == before {
            sleep(LOGIN_POLL).await;
        }
    }
}
