//! A client of a task server, for the HTTP+JSON binding of A2A 1.0.

use std::net::IpAddr;
use std::time::Duration;

use allstop_a2a::RECEIPT_EXTENSION;
use allstop_core::{Receipt, error_chain};
use allstop_model::provider::without_secrets;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::TaskListPage;
use crate::error::CliError;

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Maximum wait for an answer. An answer to a stop may take much longer: the server sends it only after the grace of
/// the stop and the time for force.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const STOP_ANSWER_MAX: Duration = Duration::from_mins(10);

/// Maximum time without data on a stream. Servers send a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Maximum bytes of the body of an answer, enough for a page of tasks with a long history. The server may be untrusted,
/// so its data is bounded.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum bytes of the body of an error answer, which is usually one sentence.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Maximum tasks of a page (A2A 1.0, section 3.1.4).
pub(super) const PAGE_LEN_MAX: usize = 100;

/// A server of tasks.
#[derive(Debug, Clone)]
pub(crate) struct TaskServer {
    http: Client,
    /// HTTP client for streams. It limits the time without data, but not the length of a stream.
    streams: Client,
    base: Url,
}

/// Failure of a request.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The server was unreachable, or the connection was lost. A retry may succeed.
    Connection(CliError),
    /// The server refused the request.
    Refused { status: StatusCode, error: CliError },
}

/// A client that follows no redirects, because the token must reach only its intended server.
pub(crate) fn http_client() -> reqwest::ClientBuilder {
    // Process-wide default for all TLS clients.
    let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(CONNECT_MAX)
        .redirect(reqwest::redirect::Policy::none())
}

impl From<RequestError> for CliError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Connection(error) | RequestError::Refused { error, .. } => error,
        }
    }
}

impl TaskServer {
    /// The server at this URL. The client sends the token, if any, as a bearer token.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, CliError> {
        let wrong = |why: &str| {
            let shown = without_secrets(url);
            CliError::usage(format!("the server's URL `{shown}` is invalid: {why}")).hint(
                "use a URL such as http://127.0.0.1:8080 in --server, or in the environment variable ALLSTOP_SERVER",
            )
        };
        let base = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if !["http", "https"].contains(&base.scheme()) {
            return Err(wrong(&format!(
                "the scheme is `{}`, expected `http` or `https`",
                base.scheme()
            )));
        }
        if !base.username().is_empty() || base.password().is_some() {
            let why = "the URL contains a user or a password";
            return Err(wrong(why).hint("put a token into the environment variable ALLSTOP_TOKEN"));
        }
        let mut headers = HeaderMap::new();
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        if let Some(token) = token {
            let mut token = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                CliError::usage("the environment variable ALLSTOP_TOKEN contains characters that a token cannot have")
            })?;
            token.set_sensitive(true);
            headers.insert(AUTHORIZATION, token);
        }
        let host = base.host_str().unwrap_or_default();
        let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
        let is_loopback = host == "localhost" || address.is_ok_and(|ip| ip.is_loopback());
        let client = || {
            let client = http_client().default_headers(headers.clone());
            if is_loopback {
                client.no_proxy()
            } else {
                client
            }
        };
        let failed = |error: reqwest::Error| CliError::failure(error_chain(&error));
        Ok(Self {
            http: client().build().map_err(failed)?,
            streams: client().read_timeout(SILENCE_MAX).build().map_err(failed)?,
            base,
        })
    }

    /// The server's address, for people.
    pub(crate) fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A task, as the server sends it.
    pub(crate) async fn task(&self, id: &str) -> Result<Value, RequestError> {
        self.answer(self.http.get(self.task_url(id, "")), ANSWER_MAX)
            .await
    }

    /// Sends a message. Returns the accepted task. If the same message id is sent again, no second task is started.
    pub(crate) async fn send(&self, message_id: &str, text: &str) -> Result<Value, RequestError> {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]},
        });
        let request = self.http.post(self.url(&["message:send"]));
        let mut answer: Value = self.answer(request.json(&body), ANSWER_MAX).await?;
        Ok(answer["task"].take())
    }

    /// A page of the task list, the newest task first.
    pub(super) async fn page(
        &self,
        filter: &[(&str, &str)],
        token: &str,
        len: usize,
    ) -> Result<TaskListPage, RequestError> {
        let mut url = self.url(&["tasks"]);
        url.query_pairs_mut()
            .extend_pairs(filter)
            .append_pair("pageSize", &len.min(PAGE_LEN_MAX).to_string())
            .append_pair("historyLength", "1")
            .append_pair("pageToken", token);
        self.answer(self.http.get(url), ANSWER_MAX).await
    }

    /// Stops a task, and returns the ended task.
    pub(crate) async fn stop(&self, id: &str, reason: Option<&str>) -> Result<Value, RequestError> {
        let cause = json!({"cause": {"detail": reason, "by": "cli"}});
        let body = json!({"metadata": {RECEIPT_EXTENSION: cause}});
        let request = self.http.post(self.task_url(id, ":cancel"));
        self.answer(request.json(&body), STOP_ANSWER_MAX).await
    }

    /// The receipt that a stop of the task would return now, without a stop.
    pub(super) async fn preview(&self, id: &str) -> Result<Receipt, RequestError> {
        let request = self.http.post(self.task_url(id, ":previewCancel"));
        self.answer(request.json(&json!({})), ANSWER_MAX).await
    }

    /// Opens a stream of a task's events. The stream begins after the event with the id `behind`.
    pub(super) async fn events(
        &self,
        id: &str,
        behind: Option<&str>,
    ) -> Result<Response, RequestError> {
        let mut request = self.streams.post(self.task_url(id, ":subscribe"));
        if let Some(behind) = behind {
            request = request.header("last-event-id", behind);
        }
        let request = request.header("accept", "text/event-stream");
        self.accepted(request).await
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // The condition always holds: only a URL without a host has no path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// URL of a task. The id always stays one path segment, even if it contains a slash.
    fn task_url(&self, id: &str, action: &str) -> Url {
        self.url(&["tasks", &format!("{id}{action}")])
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        max: Duration,
    ) -> Result<T, RequestError> {
        let response = self.accepted(request.timeout(max)).await?;
        let body = self.body(response, BODY_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|error| RequestError::Refused {
            status: StatusCode::OK,
            error: CliError::failure(format!(
                "the answer from {} is not A2A 1.0: {error}",
                self.address()
            )),
        })
    }

    async fn accepted(&self, request: RequestBuilder) -> Result<Response, RequestError> {
        let response = request.send().await;
        let response = response.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response, REFUSAL_BYTES_MAX).await;
        let body = body.unwrap_or_default();
        Err(RequestError::Refused {
            status,
            error: self.refusal(status, &body),
        })
    }

    async fn body(
        &self,
        mut response: Response,
        bytes_max: usize,
    ) -> Result<Vec<u8>, RequestError> {
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.unreachable(&error))?
        {
            if body.len() + chunk.len() > bytes_max {
                let mib = bytes_max / (1024 * 1024);
                let text = format!("{} sent an answer of more than {mib} MiB", self.address());
                let error = CliError::failure(text).hint("request fewer tasks: --limit N");
                return Err(RequestError::Refused { status, error });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The error in the last event of a stream.
    pub(super) fn stream_error(&self, data: &str) -> RequestError {
        let body = serde_json::from_str::<Value>(data).unwrap_or_default();
        let code = body["error"]["code"].as_u64();
        let status = code.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let status = status.unwrap_or(StatusCode::BAD_REQUEST);
        RequestError::Refused {
            status,
            error: self.refusal(status, data.as_bytes()),
        }
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> CliError {
        let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let said = body["error"]["message"].as_str();
        let error = CliError::failure(match said {
            Some(said) => said.to_owned(),
            None => format!("{} answered {status}", self.address()),
        });
        match status {
            StatusCode::UNAUTHORIZED => {
                let without = || format!("{} requires a valid token", self.address());
                CliError::failure(said.map_or_else(without, str::to_owned))
                    .hint("put a token into the environment variable ALLSTOP_TOKEN")
            }
            StatusCode::NOT_FOUND if said.is_none() => {
                error.hint("check that it is an A2A 1.0 server with the HTTP+JSON binding")
            }
            _ => error,
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> RequestError {
        let why = if error.is_timeout() {
            "timed out".to_owned()
        } else {
            // The innermost error contains the reason. The outer errors only repeat the address.
            let mut innermost: &dyn std::error::Error = error;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            innermost.to_string()
        };
        let failed = CliError::failure(format!("no answer from {}: {why}", self.address()));
        // With any other error there is a server, or the address is wrong.
        RequestError::Connection(if is_refused(error) {
            failed.hint(
                "start a server with `allstop serve --agent echo`, or name another one with --server URL",
            )
        } else {
            failed
        })
    }
}

/// True if no program listens at the address.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}
