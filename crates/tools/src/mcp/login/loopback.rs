//! The local address to which the browser returns after a login.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::error::McpLoginError;

/// Maximum size of a request of the browser, in bytes. A redirect has one long line and the headers of the browser.
const REQUEST_BYTES_MAX: usize = 32 * 1024;

/// Time that a connection has to send its request. A browser may open a connection in advance and send nothing, and the
/// next connection waits for it.
const REQUEST_WAIT: Duration = Duration::from_secs(2);

/// Path of the redirect.
const PATH: &str = "/callback";

/// Text of the page in the browser.
const DONE: &str = "The login is complete. You can close this window.";
const REFUSED: &str = "The login was refused. You can close this window.";
const FOREIGN: &str = "This page belongs to another login. The login in the terminal still waits.";

/// The listener for the redirect.
#[derive(Debug)]
pub(super) struct Loopback {
    listener: TcpListener,
    redirect: String,
}

impl Loopback {
    /// Listens on a port of this machine; 0 means any free port.
    pub(super) async fn listen(port: u16) -> Result<Self, McpLoginError> {
        let failed = |error: std::io::Error| {
            McpLoginError::Failed(format!("port {port} of 127.0.0.1 cannot be used: {error}"))
        };
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self {
            listener,
            redirect: format!("http://127.0.0.1:{port}{PATH}"),
        })
    }

    pub(super) fn redirect(&self) -> &str {
        &self.redirect
    }

    /// Waits for the redirect of the login with this state, and returns its URL. Other requests get an error, so another
    /// program on this machine cannot end the login.
    ///
    /// # Cancel safety
    /// Dropping the future may drop a request.
    pub(super) async fn returned(&self, state: &str) -> Result<String, McpLoginError> {
        loop {
            let accepted = self.listener.accept().await;
            let (mut stream, _) = accepted.map_err(|error| {
                McpLoginError::Failed(format!("no browser can return: {error}"))
            })?;
            let Ok(Some(target)) = timeout(REQUEST_WAIT, target(&mut stream)).await else {
                continue;
            };
            let query = target
                .strip_prefix(PATH)
                .and_then(|rest| rest.strip_prefix('?'));
            let query = query.map(|query| (query, is_of_login(query, state)));
            let (status, text) = match query {
                None => ("404 Not Found", ""),
                Some((_, false)) => ("400 Bad Request", FOREIGN),
                Some((query, true)) if query.split('&').any(|pair| pair.starts_with("code=")) => {
                    ("200 OK", DONE)
                }
                Some(_) => ("200 OK", REFUSED),
            };
            // The login does not depend on the page.
            drop(timeout(REQUEST_WAIT, answer(&mut stream, status, text)).await);
            if let Some((query, true)) = query {
                return Ok(format!("{}?{query}", self.redirect));
            }
        }
    }
}

/// True if the query contains this state, which only the authorization server and the browser of the person have.
pub(super) fn is_of_login(query: &str, state: &str) -> bool {
    let mut pairs = query.split('&');
    !state.is_empty() && pairs.any(|pair| pair.strip_prefix("state=") == Some(state))
}

/// Reads a request. `None` if it has no valid target.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await.ok()?;
        request.extend_from_slice(&piece[..read]);
        if read == 0 || request.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    request_target(&request)
}

/// Target of a GET request, such as `/callback?code=1`.
pub(super) fn request_target(request: &[u8]) -> Option<String> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_http = words.next()?.starts_with("HTTP/1.") && words.next().is_none();
    let is_target = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    (method == "GET" && is_http && is_target).then(|| target.to_owned())
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) -> std::io::Result<()> {
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_of_another_login_has_another_state() {
        assert!(is_of_login("code=1&state=abc", "abc"));
        for query in [
            "code=1&state=other",
            "code=1",
            "xstate=abc",
            "state=abc1",
            "",
        ] {
            assert!(!is_of_login(query, "abc"), "{query}");
        }
        assert!(!is_of_login("state=", ""));
    }

    #[test]
    fn only_a_request_of_a_browser_has_a_target() {
        let target = |request: &str| request_target(request.as_bytes());
        assert_eq!(
            target("GET /callback?code=a%20b&state=c HTTP/1.1\r\nHost: x\r\n\r\n").as_deref(),
            Some("/callback?code=a%20b&state=c")
        );
        for request in [
            "POST /callback HTTP/1.1\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\n\r\n",
            "GET /a b HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET",
            "",
        ] {
            assert_eq!(target(request), None, "{request}");
        }
    }
}
