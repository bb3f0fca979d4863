//! MCP servers, from the configuration to a turn that uses them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Extent;
use allstop_model::Reply;
use allstop_model::provider::KeyLookup;
use allstop_runtime::config::McpLoginSection;
use allstop_runtime::{SessionSetup, StartErrorKind, System, mcp_login_options};
use allstop_scope::StopRequest;
use allstop_session::StopTarget;
use allstop_tools::mcp::LoginClient;
use serde_json::json;

use crate::{Place, one_turn, user, wait_until, within};

/// A server in a few lines of shell script, with one tool that returns its arguments.
const SERVER: &str = r#"
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"server/discover"'*) result='{}' ;;
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"greet","inputSchema":{"type":"object"}},{"name":"hidden","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"hello from '$GREETER'"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
echo ended >ended
"#;

/// Creates a place with the server's program, and the configuration of the server.
fn place() -> (Place, String) {
    let place = Place::new();
    std::fs::write(place.file("server.sh"), SERVER).expect("it can be written");
    let config = "[mcp.servers.sh]\n\
        command = \"sh\"\n\
        args = [\"server.sh\"]\n\
        env = { GREETER = \"a server\" }\n\
        deny = [\"hid*\"]\n";
    (place, config.to_owned())
}

async fn open(place: &Place, config: &str) -> System {
    let reply = Reply::text("").call("sh__greet", json!({}));
    place.system(config, vec![reply, Reply::text("done")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_calls_a_server_tool_and_close_ends_the_server() {
    let (place, config) = place();
    let system = within(open(&place, &config)).await;
    assert_eq!(system.mcp().all()[0].state().to_string(), "ready");
    let session = system.new_session(None, SessionSetup::default()).await;
    let session = session.unwrap().session;
    let mut events = session.watch();
    let outcome = within(session.send("go").unwrap().outcome()).await;
    assert_eq!(&*outcome.output, "done");
    let mut seen = String::new();
    while let Some(event) = events.try_next() {
        write!(seen, "{event:?}").unwrap();
    }
    assert!(seen.contains("hello from a server"), "{seen}");
    assert!(system.scope().running().len() == 1, "the server runs on");
    within(system.close()).await;
    wait_until("nothing runs", || system.scope().is_quiet()).await;
    assert!(place.file("ended").exists(), "its input was closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_of_a_turn_does_not_end_the_server() {
    let (place, config) = place();
    let system = within(open(&place, &config)).await;
    let session = system.new_session(None, SessionSetup::default()).await;
    let session = session.unwrap().session;
    let _receipt = within(session.stop(&StopTarget::Session, user()).receipt()).await;
    assert_eq!(system.mcp().all()[0].state().to_string(), "ready");
    let order = StopRequest::new(Extent::Process, user());
    let receipt = within(system.scope().stop(order).receipt()).await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(&*receipt.items()[0].name, "mcp server sh");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_name_tools_of_servers() {
    let (place, config) = place();
    let with_rules = |rules: &str| format!("[permissions]\nallow = [{rules}]\n{config}");
    // A server can be absent from this project, so a rule about it is only a note.
    let right = "\"sh__*\", \"sh__greet\", \"other__greet\"";
    let options = place.options(&with_rules(right), None);
    let error = System::open(options).await.expect_err("no model");
    assert_eq!(error.kind, StartErrorKind::NoModel);
    for wrong in ["sh__", "sh_greet"] {
        let model = allstop_model::ScriptedModel::new(Vec::new());
        let options = place.options(&with_rules(&format!("\"{wrong}\"")), Some(model));
        let error = System::open(options).await.expect_err(wrong);
        assert_eq!(error.kind, StartErrorKind::Config);
        assert!(error.hint.unwrap().contains("SERVER__TOOL"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_server_is_reported_before_anything_starts() {
    let place = Place::new();
    for (section, says) in [
        ("", "neither `command` nor `url` is given"),
        (
            "command = \"x\"\nurl = \"http://127.0.0.1:1\"",
            "both `command` and `url` are given",
        ),
        ("command = \"x\"\nheaders = { a = \"b\" }", "require `url`"),
        (
            "url = \"http://127.0.0.1:1\"\nargs = [\"x\"]",
            "require `command`",
        ),
        (
            "url = \"http://127.0.0.1:1\"\nbearer_token_env = \"NO\"",
            "NO is not set",
        ),
        ("command = \"x\"\nlogin = { port = 1 }", "require `url`"),
        ("command = \"x\"\nallow = [\"[\"]", "invalid pattern"),
    ] {
        let config = format!("[mcp.servers.bad]\n{section}\n");
        let model = allstop_model::ScriptedModel::new(Vec::new());
        let error = System::open(place.options(&config, Some(model)))
            .await
            .expect_err(section);
        assert_eq!(error.kind, StartErrorKind::Config);
        assert!(error.message.contains(says), "{}", error.message);
        assert!(!place.file("store.db").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_server_delays_the_start_by_its_limit_only() {
    let place = Place::new();
    let config = "[mcp.servers.hangs]\ncommand = \"sleep\"\nargs = [\"600\"]\nhandshake_timeout = \"200ms\"\n";
    let began = std::time::Instant::now();
    let system = within(place.system(config, vec![Reply::text("done")])).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let state = system.mcp().all()[0].state().to_string();
    assert!(state.starts_with("not available"), "{state}");
    assert_eq!(&*within(one_turn(&system, "go")).await.output, "done");
    within(system.close()).await;
}

/// A secret without a client would be sent for no client.
#[test]
fn login_of_a_registered_client_needs_its_id_and_its_secret() {
    let keys: KeyLookup = Arc::new(|name| (name == "SECRET").then(|| "s".to_owned()));
    let section = |id: Option<&str>, secret: Option<&str>| {
        let mut section = McpLoginSection::default();
        section.client_id = id.map(str::to_owned);
        section.client_secret_env = secret.map(str::to_owned);
        section.scopes = vec!["read".to_owned()];
        section
    };
    let of = |section: &McpLoginSection| mcp_login_options(section, &[], &keys);
    let options = of(&section(Some("c"), Some("SECRET"))).unwrap();
    let LoginClient::Registered { id, secret } = options.client else {
        panic!("{options:?}");
    };
    assert_eq!((&*id, secret.as_deref()), ("c", Some("s")));
    assert_eq!(options.scopes, ["read"]);
    let other = mcp_login_options(&section(None, None), &["write".to_owned()], &keys);
    assert_eq!(other.unwrap().scopes, ["write"]);
    for (wrong, why) in [
        (
            section(None, Some("SECRET")),
            "`client_secret_env` requires `client_id`",
        ),
        (
            section(Some("c"), Some("NO")),
            "the environment variable NO is not set",
        ),
    ] {
        assert_eq!(of(&wrong).unwrap_err().message, why);
    }
}
