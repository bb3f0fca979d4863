//! A program that the official conformance suite of MCP starts as the client. It uses the client of this library in the
//! same way as a session does: it starts the server's connection, lists the tools, and calls them.
//!
//! `allstop-tools-mcp-conformance-client URL`, with the name of the scenario in `MCP_CONFORMANCE_SCENARIO` and its data
//! as JSON in `MCP_CONFORMANCE_CONTEXT`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use allstop_core::{CallId, SessionId};
use allstop_process::ContainmentChoice;
use allstop_scope::{RootOptions, Scope, ScopeOptions};
use allstop_tools::mcp::{
    LoginClient, LoginOptions, McpLogin, McpOptions, McpServer, McpServerConfig, McpServers,
    McpState, McpTransport,
};
use allstop_tools::server_question::{FieldKind, FormAnswer, ServerQuestion, WantedInput};
use allstop_tools::{
    CallLink, CallObserver, CallProgress, OutputFolder, PermissionAnswer, PermissionQuestion,
    Prompter, Tool, ToolInvocation, ToolSource as _,
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

/// Maximum number of logins of a scenario: for the connection, for more rights, and for another authorization server.
const LOGINS_MAX: usize = 3;

/// Document that the suite expects as the id of a client.
const METADATA_DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// A tool call of a scenario: the server's name of the tool, and the arguments.
type PlannedCall = (String, Value);

/// A person who accepts all questions, and who answers only questions with yes or no and without a default.
#[derive(Debug)]
struct Person;

impl Prompter for Person {
    fn ask(&self, _question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(std::future::ready(PermissionAnswer::Unanswered))
    }

    fn answer_server(&self, question: ServerQuestion) -> BoxFuture<'_, FormAnswer> {
        let mut values = Map::new();
        if let WantedInput::Form(fields) = &question.wanted {
            let open = fields.iter().filter(|field| field.default.is_none());
            for field in open.filter(|field| field.kind == FieldKind::Boolean) {
                values.insert(field.name.clone(), true.into());
            }
        }
        Box::pin(std::future::ready(FormAnswer::Accept(values)))
    }
}

impl CallObserver for Person {
    fn output(&self, _call_id: &CallId, _output: &[u8]) {}

    fn progress(&self, _call_id: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}

    fn prompter(&self) -> Option<Arc<dyn Prompter>> {
        Some(Arc::new(Self))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the suite shows the error of a client")]
fn print_error(why: &str) {
    eprintln!("{why}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is a binary, and the suite passes data in the environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

async fn run() -> Result<(), String> {
    let url = std::env::args().nth(1).ok_or("the URL is missing")?;
    let scenario = variable("MCP_CONFORMANCE_SCENARIO");
    let context = variable("MCP_CONFORMANCE_CONTEXT");
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let root = Scope::root("process", RootOptions::single_runtime());
    let mut logins = 0..LOGINS_MAX;
    loop {
        let servers = servers(&url, folder.path())?;
        let started = servers.start(&root).await;
        started.map_err(|error| error.to_string())?;
        let result = act(&servers, &root, &scenario, &context, folder.path()).await;
        servers.close().await;
        match result {
            Err(why) if why.contains("allstop mcp login") && logins.next().is_some() => {
                log_in(&servers.all()[0], &scenario, &context).await?;
            }
            result => return result,
        }
    }
}

fn servers(url: &str, folder: &Path) -> Result<McpServers, String> {
    let transport = McpTransport::Http {
        url: url.into(),
        headers: Vec::new(),
    };
    let config = McpServerConfig::new("t", transport).map_err(|error| error.to_string())?;
    let options = McpOptions::new(folder, folder.join("pipes"))
        .login_folder(folder.join("logins"))
        .containment(ContainmentChoice::GroupAndMarker);
    McpServers::new(vec![config], options).map_err(|error| error.to_string())
}

/// Logs in like a person with a browser. The authorization servers of the suite ask nothing, and redirect at once.
async fn log_in(server: &McpServer, scenario: &str, context: &Value) -> Result<(), String> {
    let text = |key: &str| context[key].as_str().map(str::to_owned);
    let client = match (scenario, text("client_id")) {
        ("auth/basic-cimd", _) => LoginClient::Registered {
            id: METADATA_DOCUMENT.to_owned(),
            secret: None,
        },
        (_, Some(id)) => LoginClient::Registered {
            id,
            secret: text("client_secret"),
        },
        (_, None) => LoginClient::Dynamic,
    };
    let options = LoginOptions::default().client(client);
    let login = McpLogin::begin(server, options).await;
    let login = login.map_err(|error| error.to_string())?;
    let address = login.address().to_owned();
    let visit = async {
        let visited = reqwest::get(address).await;
        visited.map_err(|error| format!("the browser failed: {error}"))
    };
    let finish = async { login.finish().await.map_err(|error| error.to_string()) };
    let (_page, ()) = futures::future::try_join(visit, finish).await?;
    Ok(())
}

/// Does the action of the scenario.
async fn act(
    servers: &McpServers,
    root: &Scope,
    scenario: &str,
    context: &Value,
    folder: &Path,
) -> Result<(), String> {
    let state = servers.all()[0].state();
    if !matches!(state, McpState::Ready) {
        return Err(format!("the server is {state}"));
    }
    let output_folder = Arc::new(OutputFolder::new(folder.join("output")));
    let tools = servers.tools(&output_folder).tools();
    for (name, arguments) in calls(scenario, context, &tools) {
        let name = format!("t__{name}");
        let tool = tools.iter().find(|tool| *tool.spec().name == *name);
        let tool = tool.ok_or_else(|| format!("the server has no tool {name}"))?;
        call(root, tool, arguments).await?;
    }
    Ok(())
}

/// Returns the calls of a scenario. Most scenarios expect a call of each listed tool.
fn calls(scenario: &str, context: &Value, tools: &[Arc<dyn Tool>]) -> Vec<PlannedCall> {
    let names = tools.iter().map(|tool| own_name(&**tool));
    match scenario {
        "json-schema-ref-no-deref" => Vec::new(),
        "json-schema-2020-12-preservation" => {
            let has_schema =
                |tool: &&Arc<dyn Tool>| own_name(&***tool) == "json_schema_2020_12_tool";
            let schema = tools.iter().find(has_schema);
            let schema = schema.map(|tool| Value::clone(&tool.spec().input_schema));
            vec![("json_schema_echo".to_owned(), json!({"schema": schema}))]
        }
        "http-custom-headers" => {
            let planned = context["toolCalls"].as_array().cloned().unwrap_or_default();
            let call = |call: Value| {
                let name = call["name"].as_str().unwrap_or_default().to_owned();
                (name, call["arguments"].clone())
            };
            planned.into_iter().map(call).collect()
        }
        "tools_call" => names.map(|name| (name, json!({"a": 2, "b": 3}))).collect(),
        _ => names.map(|name| (name, json!({}))).collect(),
    }
}

/// Name of a tool, as the server names it.
fn own_name(tool: &dyn Tool) -> String {
    let name = &tool.spec().name;
    name.strip_prefix("t__").unwrap_or(name).to_owned()
}

async fn call(root: &Scope, tool: &Arc<dyn Tool>, arguments: Value) -> Result<(), String> {
    let scope = root
        .child("call", ScopeOptions::default())
        .map_err(|error| error.to_string())?;
    let invocation = ToolInvocation {
        session_id: SessionId::new("s"),
        call_id: CallId::new("call_1"),
        name: Arc::clone(&tool.spec().name),
        arguments: Arc::new(arguments),
        scope,
        trace: None,
        link: CallLink::new(CallId::new("call_1"), Arc::new(Person)),
        mcp_meta: allstop_tools::McpMeta::default(),
    };
    let answered = tool.call(invocation).await;
    answered.map(drop).map_err(|error| error.message)
}
