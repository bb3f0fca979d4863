//! Parts of all scenarios: the program, a session with its events, and tools with an account of their calls.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use github_copilot_sdk::session::Session;
use github_copilot_sdk::subscription::EventSubscription;
use github_copilot_sdk::tool::ToolHandler;
use github_copilot_sdk::types::{Tool, ToolInvocation};
use github_copilot_sdk::{Client, ClientOptions, Error, ToolResult};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The program that the SDK drives.
pub struct Program {
    pub client: Client,
}

impl Program {
    pub async fn start() -> Result<Self, Error> {
        let program = std::env::var_os("COPILOT_CLI_PATH").expect("COPILOT_CLI_PATH");
        let arguments = std::env::args().skip(1);
        let options = ClientOptions::default()
            .with_program(PathBuf::from(program))
            .with_prefix_args(arguments.take_while(|argument| argument != "--"))
            .with_cwd(std::env::current_dir().expect("a folder"));
        let client = Client::start(options).await?;
        Ok(Self { client })
    }

    /// Closes the sessions. The SDK then kills the program.
    pub async fn end(self) {
        self.client.stop().await.expect("a stop without errors");
    }

    pub fn kill(&self) {
        self.client.force_stop();
    }
}

/// A session with its later events.
pub struct SdkSession {
    pub session: Session,
    events: EventSubscription,
}

impl SdkSession {
    pub fn of(session: Session) -> Self {
        let events = session.subscribe();
        Self { session, events }
    }

    /// Sends a message and returns the text of the answer.
    pub async fn answer(&self, prompt: &str) -> Result<String, Error> {
        let event = self.session.send_and_wait(prompt).await?;
        let content = event.map(|event| event.data["content"].clone());
        Ok(content
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }

    /// Data of the next event of this kind. Skips the events before it.
    pub async fn next(&mut self, kind: &str) -> Value {
        loop {
            let event = self.events.recv().await.expect("an event");
            if event.event_type == kind {
                return event.data;
            }
        }
    }
}

/// Tools of this client, with an account of their calls.
#[derive(Clone)]
pub struct Handlers {
    /// The names that the model gave its calls, with the ids of the calls.
    calls: Arc<watch::Sender<BTreeMap<String, String>>>,
    released: Arc<watch::Sender<bool>>,
}

impl Default for Handlers {
    fn default() -> Self {
        Self {
            calls: Arc::default(),
            released: Arc::default(),
        }
    }
}

impl Handlers {
    pub fn tools(&self) -> Vec<Tool> {
        let tool = |name: &str, parameter: &str| {
            let parameters =
                json!({"type": "object", "properties": {parameter: {"type": "string"}}});
            let tool = Tool::new(name)
                .with_description("A tool of the test.")
                .with_parameters(parameters);
            tool.with_handler(Arc::new(self.clone()))
        };
        vec![tool("wait", "name"), tool("echo", "text")]
    }

    pub async fn wait_for_calls(&self, count: usize) {
        let mut calls = self.calls.subscribe();
        let _seen = calls
            .wait_for(|calls| calls.len() >= count)
            .await
            .expect("calls");
    }

    pub fn call_named(&self, name: &str) -> String {
        self.calls.borrow()[name].clone()
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

#[async_trait]
impl ToolHandler for Handlers {
    async fn call(&self, invocation: ToolInvocation) -> Result<ToolResult, Error> {
        let argument = |name: &str| {
            invocation.arguments[name]
                .as_str()
                .unwrap_or("one")
                .to_owned()
        };
        if invocation.tool_name == "echo" {
            return Ok(ToolResult::Text(format!("echo {}", argument("text"))));
        }
        let name = argument("name");
        self.calls.send_modify(|calls| {
            calls.insert(name.clone(), invocation.tool_call_id.clone());
        });
        let mut released = self.released.subscribe();
        let _now = released.wait_for(|released| *released).await;
        Ok(ToolResult::Text(format!("released {name}")))
    }
}
