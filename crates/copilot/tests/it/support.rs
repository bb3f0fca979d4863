//! A server with a scripted model, and clients that write frames by hand.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_copilot::{ConnectionAccess, CopilotOptions, CopilotServer, ServedConnectionEnd};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_jsonrpc::{FrameDecoder, FrameLimits, encode_frame};
use allstop_model::ScriptedModel;
use allstop_runtime::{Config, ModelChoice, StoreChoice, System, SystemOptions};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec};
use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::timeout;

/// Maximum wait in these tests, even on slow machines. A longer wait counts as a hang.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Size in bytes of the buffer between the two sides of a connection.
const PIPE_BYTES: usize = 64 * 1024;

/// Time of the connections to end by themselves, as in the process of the server.
const CONNECTIONS_GRACE: Duration = Duration::from_millis(500);

/// Options of a server that reports the version of these tests.
pub(crate) fn test_options() -> CopilotOptions {
    CopilotOptions::new("1.2.3")
}

/// A server with a model that follows a script.
pub(crate) struct TestServer {
    server: CopilotServer,
    connections: Scope,
    clients: Scope,
    place: TempDir,
}

impl TestServer {
    pub(crate) async fn new(script: &str) -> Self {
        Self::with(script, Duration::from_mins(1), PermissionAnswer::Unanswered).await
    }

    pub(crate) async fn with(
        script: &str,
        unattended_max: Duration,
        default_answer: PermissionAnswer,
    ) -> Self {
        Self::configured("", script, unattended_max, default_answer).await
    }

    pub(crate) async fn configured(
        config: &str,
        script: &str,
        unattended_max: Duration,
        default_answer: PermissionAnswer,
    ) -> Self {
        let in_memory = |_: &Path| StoreChoice::Memory;
        let options = test_options()
            .unattended_max(unattended_max)
            .default_answer(default_answer);
        Self::stored(config, script, options, in_memory).await
    }

    /// Creates a server with these options.
    pub(crate) async fn with_options(config: &str, script: &str, options: CopilotOptions) -> Self {
        let in_memory = |_: &Path| StoreChoice::Memory;
        Self::stored(config, script, options, in_memory).await
    }

    /// Creates a server whose log is a file, so that [`TestServer::files_with`] finds its texts.
    pub(crate) async fn on_disk(script: &str) -> Self {
        let in_file = |place: &Path| StoreChoice::Sqlite(place.join("store.db"));
        Self::stored("", script, test_options(), in_file).await
    }

    async fn stored(
        config: &str,
        script: &str,
        options: CopilotOptions,
        store: impl FnOnce(&Path) -> StoreChoice,
    ) -> Self {
        let place = TempDir::new().expect("a temporary folder");
        let model = ScriptedModel::parse("test.yaml", script).expect("the script is right");
        let config = Config::parse(Path::new("test.toml"), config);
        let config = config.expect("the configuration is right");
        let system = SystemOptions::new(config, place.path())
            .model(ModelChoice::Given(Arc::new(model)))
            .store(store(place.path()))
            .spill_folder(place.path().join("output"))
            .scopes(RootOptions::single_runtime());
        let root = system.root();
        let child = |label: &'static str| {
            let child = root.child(label, ScopeOptions::default());
            child.expect("nothing is stopped")
        };
        let clients = child("clients");
        let system = System::open_in(child("agent"), system).await;
        let system = system.expect("the system opens");
        system.start_servers().await.expect("nothing is stopped");
        let options = options.settings_file(place.path().join("settings/settings.json"));
        let connections = child("connections");
        Self {
            server: CopilotServer::new(Arc::new(system), connections.clone(), options),
            connections,
            clients,
            place,
        }
    }

    /// Ends the server like its process does after `runtime.shutdown`.
    pub(crate) async fn stop(&self) {
        self.server.shutdown_requested().await;
        let cause = Cause::new(CauseKind::Shutdown);
        drop(self.server.close(&cause).await);
        let request = StopRequest::new(Extent::Process, cause).grace(CONNECTIONS_GRACE);
        drop(self.connections.stop(request).receipt().await);
    }

    /// Closes all sessions.
    pub(crate) async fn close_sessions(&self) {
        drop(self.server.close(&Cause::new(CauseKind::Shutdown)).await);
    }

    /// Folder of the server, which is also the working directory of its sessions.
    pub(crate) fn folder(&self) -> &Path {
        self.place.path()
    }

    /// Files of the server that contain this text.
    pub(crate) fn files_with(&self, text: &str) -> Vec<String> {
        let (mut folders, mut found) = (vec![self.place.path().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if String::from_utf8_lossy(&bytes).contains(text) {
                        found.push(path.display().to_string());
                    }
                }
            }
        }
        found
    }

    /// Connects a client that is trusted, as on standard input and output.
    pub(crate) fn client(&self) -> TestClient {
        self.client_with(ConnectionAccess::Trusted)
    }

    pub(crate) fn client_with(&self, access: ConnectionAccess) -> TestClient {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let server = self.server.clone();
        let (input, output) = tokio::io::split(theirs);
        let spec = WorkSpec::new(ItemKind::Future, "client");
        let serve = async move { server.serve(input, output, access).await };
        let serving = self.clients.spawn(spec, |_cx| serve);
        let (read, write) = tokio::io::split(ours);
        TestClient {
            write,
            read,
            decoder: FrameDecoder::new(FrameLimits {
                header_bytes_max: 1024,
                body_bytes_max: 256 * 1024 * 1024,
            }),
            requests: 0,
            messages: Vec::new(),
            seen: Vec::new(),
            serving: serving.expect("nothing is stopped"),
        }
    }
}

/// Reads the next message; `None` at the end of the connection.
async fn next_message(
    read: &mut ReadHalf<DuplexStream>,
    decoder: &mut FrameDecoder,
) -> Option<Value> {
    let mut chunk = [0; 4 * 1024];
    loop {
        if let Some(body) = decoder.next_frame().expect("frames of the server") {
            return Some(serde_json::from_slice(&body).expect("JSON of the server"));
        }
        let len = read.read(&mut chunk).await.unwrap_or(0);
        if len == 0 {
            return None;
        }
        decoder.push(&chunk[..len]);
    }
}

/// A client that writes frames by hand.
pub(crate) struct TestClient {
    write: WriteHalf<DuplexStream>,
    read: ReadHalf<DuplexStream>,
    decoder: FrameDecoder,
    requests: u64,
    /// Messages that the test has not taken yet.
    messages: Vec<Value>,
    /// All received messages, in the order of their arrival.
    seen: Vec<Value>,
    serving: WorkHandle<ServedConnectionEnd>,
}

impl TestClient {
    /// Writes bytes without framing. Returns false if the server has ended the connection.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.write.write_all(bytes).await.is_ok()
    }

    /// Writes one message as a frame.
    pub(crate) async fn message(&mut self, message: &Value) {
        let frame = encode_frame(message.to_string().as_bytes());
        assert!(self.write(&frame).await, "the connection has ended");
    }

    /// Sends a request. Returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let id = self.requests;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.message(&request).await;
        id
    }

    /// Sends a request. Returns the whole answer.
    pub(crate) async fn answer(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params).await;
        self.answer_to(id).await
    }

    /// Sends a request. Returns the result in the answer.
    pub(crate) async fn request(&mut self, method: &str, params: &Value) -> Value {
        let mut answer = self.answer(method, params).await;
        let result = answer.get_mut("result").map(Value::take);
        result.unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    pub(crate) async fn answer_to(&mut self, id: u64) -> Value {
        self.take("an answer", |message| {
            message["id"] == id && message.get("method").is_none()
        })
        .await
    }

    /// Waits for the next event of this type. Returns its data.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        let mut message = self
            .take(kind, |message| message["params"]["event"]["type"] == kind)
            .await;
        message["params"]["event"]["data"].take()
    }

    /// Takes the first message that satisfies `fits` and was not taken before, or waits for such a message.
    pub(crate) async fn take(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(at) = self.messages.iter().position(&fits) {
                return self.messages.remove(at);
            }
            let message = timeout(SOON, self.read_message()).await;
            let message = message.unwrap_or_else(|_| panic!("no {what}: {:?}", self.messages));
            match message {
                Some(message) => {
                    self.seen.push(message.clone());
                    self.messages.push(message);
                }
                None => panic!("the connection ended before {what}: {:?}", self.messages),
            }
        }
    }

    /// All messages that the client has read so far.
    pub(crate) fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// Messages that the client has read and the test has not taken.
    pub(crate) fn untaken(&self) -> &[Value] {
        &self.messages
    }

    /// Reads the next message from the connection; `None` if the connection has ended.
    pub(crate) async fn read_message(&mut self) -> Option<Value> {
        next_message(&mut self.read, &mut self.decoder).await
    }

    /// Writes bytes without reading, until the server accepts no further bytes. Then reads this number of messages
    /// while the remaining bytes are written.
    pub(crate) async fn flood(&mut self, bytes: &[u8], messages: usize) -> Vec<Value> {
        let (read, decoder) = (&mut self.read, &mut self.decoder);
        let mut rest = bytes;
        // On a busy machine, the server needs a long time for its first thousands of messages.
        while let Ok(written) = timeout(Duration::from_secs(1), self.write.write(rest)).await {
            rest = &rest[written.expect("the connection lives")..];
            assert!(!rest.is_empty(), "the server takes all unread messages");
        }
        let writing = self.write.write_all(rest);
        let reading = async {
            let mut all = Vec::with_capacity(messages);
            while all.len() < messages {
                let message = timeout(SOON, next_message(read, decoder)).await;
                all.push(message.expect("no hang").expect("the connection lives"));
            }
            all
        };
        let (written, all) = tokio::join!(writing, reading);
        written.expect("the connection lives");
        all
    }

    /// Creates a session with these additional members of the request. The client receives the events of the session.
    pub(crate) async fn create(&mut self, id: &str, more: &Value) {
        let mut params = more.clone();
        params["sessionId"] = id.into();
        let created = self.request("session.create", &params).await;
        assert_eq!(created["sessionId"], id);
    }

    /// Closes the sending side, and keeps reading.
    pub(crate) async fn close_output(&mut self) {
        self.write.shutdown().await.expect("the connection lives");
    }

    /// Closes the connection without notice. Returns the reason with which the server ended the connection.
    pub(crate) async fn end(self) -> ServedConnectionEnd {
        drop((self.read, self.write));
        let served = timeout(SOON, self.serving).await;
        served.expect("it ends").expect("no panic")
    }

    /// Waits until the server has ended the connection.
    pub(crate) async fn ended(mut self) -> ServedConnectionEnd {
        while timeout(SOON, self.read_message())
            .await
            .expect("no hang")
            .is_some()
        {}
        self.end().await
    }
}
