//! Logins at MCP servers, with an authorization server on a free local port that asks the person nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use allstop_core::receipt::ItemKind;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_tools::mcp::{
    ForgottenLogin, LoginClient, LoginOptions, McpLogin, McpLoginError, McpState, McpTransport,
    forget_login,
};
use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::{Place, wait_until, within};

/// A server that needs a token, and its authorization server.
#[derive(Clone, Default)]
struct Theirs(Arc<Mutex<TheirState>>);

#[derive(Default)]
struct TheirState {
    base: String,
    /// The valid access token, and the only valid refresh token. Each renewal replaces both.
    access: String,
    refresh: String,
    /// Life of an access token, in seconds.
    life: u64,
    renewals: usize,
    /// Right that a call needs.
    scope: &'static str,
    granted: String,
    /// True if the person refuses.
    refuses: bool,
    /// Forms of the token requests.
    forms: Vec<BTreeMap<String, String>>,
    /// True if the metadata names no PKCE methods.
    hides_pkce: bool,
    /// True if the metadata names an endpoint for revocations.
    revokes: bool,
    /// Forms of the revocations.
    revoked: Vec<BTreeMap<String, String>>,
}

impl Theirs {
    fn change(&self, change: impl FnOnce(&mut TheirState)) {
        change(&mut self.0.lock().unwrap());
    }

    fn renewals(&self) -> usize {
        self.0.lock().unwrap().renewals
    }
}

async fn serve(scope: &Scope) -> (String, Theirs) {
    let theirs = Theirs::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    theirs.change(|state| {
        state.base.clone_from(&base);
        state.life = 3600;
    });
    let app = Router::new()
        .route("/mcp", post(take))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .route("/revoke", post(revoke))
        .with_state(theirs.clone());
    let work = WorkSpec::new(ItemKind::Future, "server");
    let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
    drop(serving.unwrap());
    (format!("{base}/mcp"), theirs)
}

async fn take(State(theirs): State<Theirs>, headers: HeaderMap, body: String) -> Response {
    let state = theirs.0.lock().unwrap();
    let given = headers.get(header::AUTHORIZATION);
    let given = given.map_or("", |given| given.to_str().unwrap());
    let base = &state.base;
    let named = format!("resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
    if state.access.is_empty() || given != format!("Bearer {}", state.access) {
        let challenge = format!("Bearer {named}");
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    let message: Value = serde_json::from_str(&body).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
        }),
        _ if !state.granted.contains(state.scope) => {
            let challenge = format!(
                "Bearer error=\"insufficient_scope\", scope=\"{}\", {named}",
                state.scope
            );
            return (StatusCode::FORBIDDEN, [("www-authenticate", challenge)]).into_response();
        }
        _ => json!({"resultType": "complete", "content": [{"type": "text", "text": "echo"}]}),
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

async fn resource(State(theirs): State<Theirs>) -> Json<Value> {
    let base = theirs.0.lock().unwrap().base.clone();
    Json(json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}))
}

async fn metadata(State(theirs): State<Theirs>) -> Json<Value> {
    let state = theirs.0.lock().unwrap();
    let base = &state.base;
    let mut metadata = json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
        "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
    });
    if state.hides_pkce {
        let fields = metadata.as_object_mut().unwrap();
        fields.shift_remove("code_challenge_methods_supported");
    }
    if state.revokes {
        metadata["revocation_endpoint"] = format!("{base}/revoke").into();
    }
    Json(metadata)
}

async fn revoke(
    State(theirs): State<Theirs>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let mut state = theirs.0.lock().unwrap();
    state.revoked.push(form);
    if state.refuses {
        let error = Json(json!({"error": "unsupported_token_type"}));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    StatusCode::OK.into_response()
}

async fn register(Json(mut request): Json<Value>) -> (StatusCode, Json<Value>) {
    request["client_id"] = "registered".into();
    (StatusCode::CREATED, Json(request))
}

async fn authorize(
    State(theirs): State<Theirs>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Redirect {
    let mut state = theirs.0.lock().unwrap();
    assert_eq!(query["code_challenge_method"], "S256");
    let (back, nonce) = (&query["redirect_uri"], &query["state"]);
    assert!(back.starts_with("http://127.0.0.1:"), "{back}");
    if state.refuses {
        return Redirect::to(&format!("{back}?error=access_denied&state={nonce}"));
    }
    state.granted = query.get("scope").cloned().unwrap_or_default();
    Redirect::to(&format!("{back}?code=the-code&state={nonce}"))
}

async fn token(
    State(theirs): State<Theirs>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let mut state = theirs.0.lock().unwrap();
    state.forms.push(form.clone());
    let is_valid = match form["grant_type"].as_str() {
        "authorization_code" => form["code"] == "the-code" && !form["code_verifier"].is_empty(),
        _ => form["refresh_token"] == state.refresh,
    };
    if !is_valid {
        let error = Json(json!({"error": "invalid_grant"}));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    if form["grant_type"] == "refresh_token" {
        state.renewals += 1;
    }
    let count = state.forms.len();
    state.access = format!("access-{count}");
    state.refresh = format!("refresh-{count}");
    Json(json!({
        "access_token": state.access, "refresh_token": state.refresh, "token_type": "Bearer",
        "expires_in": state.life, "scope": state.granted,
    }))
    .into_response()
}

/// A server that is not started yet.
fn place(url: &str) -> Place {
    Place::not_started("", |config| {
        config.transport = McpTransport::Http {
            url: url.into(),
            headers: Vec::new(),
        };
    })
}

async fn started(url: &str) -> Place {
    let place = place(url);
    place.servers.start(&place.root).await.unwrap();
    place
}

/// Logs in like a person with a browser.
async fn log_in(place: &Place, options: LoginOptions) -> Result<(), McpLoginError> {
    let login = within(McpLogin::begin(&place.servers.all()[0], options)).await?;
    let address = login.address().to_owned();
    let visit = Box::pin(reqwest::get(address));
    let (visited, finished) = within(futures::future::join(visit, Box::pin(login.finish()))).await;
    visited.unwrap();
    finished
}

fn theirs() -> Scope {
    Scope::root("theirs", RootOptions::single_runtime())
}

/// The file with the tokens, if there is a login.
fn token_file(place: &Place) -> Option<std::path::PathBuf> {
    let files = fs::read_dir(place.path("logins")).into_iter().flatten();
    let mut files = files.map(|file| file.unwrap().path());
    files.find(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    })
}

/// A client must refuse such a server, because nothing protects the code of the login.
#[tokio::test]
async fn login_needs_metadata_with_pkce() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    theirs.change(|state| state.hides_pkce = true);
    let place = started(&url).await;
    let error = log_in(&place, LoginOptions::default()).await.unwrap_err();
    let text = error.to_string();
    let base = url.trim_end_matches("/mcp");
    assert!(text.contains(base), "{text}");
    assert!(text.contains("code_challenge_methods_supported"), "{text}");
    assert!(theirs.0.lock().unwrap().forms.is_empty());
    assert!(token_file(&place).is_none());
}

const REFUSED: &str = "it refused access with HTTP 401 Unauthorized; run `allstop mcp login t`";

#[tokio::test]
async fn refused_server_names_the_login_and_is_ready_after_it() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    let place = started(&url).await;
    assert!(
        place.state().to_string().contains(REFUSED),
        "{}",
        place.state()
    );
    log_in(&place, LoginOptions::default()).await.unwrap();
    wait_until("the login is noticed", || {
        matches!(place.state(), McpState::Ready)
    })
    .await;
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "echo");
    let file = token_file(&place).expect("a login");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let form = theirs.0.lock().unwrap().forms[0].clone();
    assert_eq!(form["resource"], url);
    assert_eq!(form["client_id"], "registered");
    let logins = place.path("logins");
    let forgotten = forget_login(&logins, "t", Some(&url)).await.unwrap();
    assert_eq!(forgotten, Some(ForgottenLogin { not_revoked: None }));
    assert!(!file.exists());
    assert_eq!(forget_login(&logins, "t", None).await.unwrap(), None);
    let error = place.call("t__echo", json!({})).await.unwrap_err();
    assert!(error.contains(REFUSED), "{error}");
}

#[tokio::test]
async fn refused_login_stores_nothing() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    theirs.change(|state| state.refuses = true);
    let place = place(&url);
    let refused = log_in(&place, LoginOptions::default()).await;
    assert_eq!(
        refused,
        Err(McpLoginError::Refused("access_denied".to_owned()))
    );
    assert!(token_file(&place).is_none());
}

/// Another program on this machine does not know the state of the login.
#[tokio::test]
async fn redirect_with_a_wrong_state_does_not_end_the_login() {
    let scope = theirs();
    let (url, _theirs) = serve(&scope).await;
    let place = place(&url);
    let begun = McpLogin::begin(&place.servers.all()[0], LoginOptions::default());
    let login = within(begun).await.unwrap();
    let address = reqwest::Url::parse(login.address()).unwrap();
    let mut pairs = address.query_pairs();
    let back = pairs.find(|(name, _)| name == "redirect_uri").unwrap().1;
    let wrong = ["code=x&state=wrong", "error=access_denied", "code=x"]
        .map(|query| format!("{back}?{query}"));
    let visits = async {
        for wrong in wrong {
            assert_eq!(reqwest::get(wrong).await.unwrap().status(), 400);
        }
        reqwest::get(address.clone()).await.unwrap()
    };
    let finish = Box::pin(login.finish());
    let (page, finished) = within(futures::future::join(Box::pin(visits), finish)).await;
    assert_eq!(page.status(), 200);
    finished.unwrap();
}

#[tokio::test]
async fn end_of_a_login_revokes_its_tokens() {
    for refuses in [false, true] {
        let scope = theirs();
        let (url, theirs) = serve(&scope).await;
        theirs.change(|state| state.revokes = true);
        let place = place(&url);
        log_in(&place, LoginOptions::default()).await.unwrap();
        theirs.change(|state| state.refuses = refuses);
        let forgotten = forget_login(&place.path("logins"), "t", None).await;
        let why =
            "the authorization server answered with HTTP 400 Bad Request unsupported_token_type";
        let not_revoked = refuses.then(|| why.to_owned());
        assert_eq!(forgotten.unwrap(), Some(ForgottenLogin { not_revoked }));
        assert!(token_file(&place).is_none());
        let form = theirs.0.lock().unwrap().revoked[0].clone();
        let expected = [
            ("client_id", "registered"),
            ("token", "refresh-1"),
            ("token_type_hint", "refresh_token"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(form, BTreeMap::from(expected));
    }
}

#[tokio::test]
async fn registered_client_logs_in_with_its_secret() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    let place = place(&url);
    let client = LoginClient::Registered {
        id: "mine".to_owned(),
        secret: Some("s3cret".to_owned()),
    };
    assert_eq!(format!("{client:?}"), "Registered(\"mine\")");
    let options = LoginOptions::default().client(client);
    log_in(&place, options).await.unwrap();
    let form = theirs.0.lock().unwrap().forms[0].clone();
    assert_eq!(
        (&*form["client_id"], &*form["client_secret"]),
        ("mine", "s3cret")
    );
}

#[tokio::test]
async fn call_without_the_right_names_the_login_that_asks_for_it() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    theirs.change(|state| state.scope = "files:write");
    let place = place(&url);
    log_in(&place, LoginOptions::default()).await.unwrap();
    place.servers.start(&place.root).await.unwrap();
    let error = place.call("t__echo", json!({})).await.unwrap_err();
    let remedy = "it needs more rights; run `allstop mcp login t --scope files:write`";
    assert!(error.contains(remedy), "{error}");
    let options = LoginOptions::default().scopes(vec!["files:write".to_owned()]);
    log_in(&place, options).await.unwrap();
    wait_until("it is there again", || {
        matches!(place.state(), McpState::Ready)
    })
    .await;
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "echo");
}

/// The authorization server accepts each refresh token once, so a lost one would need another login.
#[tokio::test]
async fn two_processes_that_renew_at_once_lose_no_token() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    let first = place(&url);
    log_in(&first, LoginOptions::default()).await.unwrap();
    first.servers.start(&first.root).await.unwrap();
    let second = Place::not_started_in(first.folder(), |config| {
        config.transport = McpTransport::Http {
            url: url.as_str().into(),
            headers: Vec::new(),
        };
    });
    second.servers.start(&second.root).await.unwrap();
    for round in 1..=3 {
        theirs.change(|state| state.access = "revoked".to_owned());
        let (one, two) = (
            first.start("t__echo", json!({})),
            second.start("t__echo", json!({})),
        );
        assert_eq!(one.answer().await.unwrap(), "echo");
        assert_eq!(two.answer().await.unwrap(), "echo");
        assert_eq!(
            theirs.renewals(),
            round,
            "one process uses the tokens of the other"
        );
    }
}

/// A stop of the call that needs the renewal does not lose the new tokens.
#[tokio::test]
async fn expired_token_is_renewed_before_its_use() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    theirs.change(|state| state.life = 0);
    let place = place(&url);
    log_in(&place, LoginOptions::default()).await.unwrap();
    theirs.change(|state| state.life = 3600);
    place.servers.start(&place.root).await.unwrap();
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "echo");
    assert_eq!(theirs.renewals(), 1);
}

#[tokio::test]
async fn refused_renewal_needs_a_login() {
    let scope = theirs();
    let (url, theirs) = serve(&scope).await;
    let place = place(&url);
    log_in(&place, LoginOptions::default()).await.unwrap();
    theirs.change(|state| {
        state.access = "revoked".to_owned();
        state.refresh = "revoked".to_owned();
    });
    place.servers.start(&place.root).await.unwrap();
    assert!(
        place.state().to_string().contains(REFUSED),
        "{}",
        place.state()
    );
}

#[tokio::test]
async fn file_that_others_can_read_is_not_used() {
    let scope = theirs();
    let (url, _theirs) = serve(&scope).await;
    let place = place(&url);
    log_in(&place, LoginOptions::default()).await.unwrap();
    let file = token_file(&place).expect("a login");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    place.servers.start(&place.root).await.unwrap();
    let state = place.state().to_string();
    assert!(state.contains("other users may have access"), "{state}");
    assert!(!state.contains("access-"), "{state}");
}

#[tokio::test]
async fn server_with_configured_credentials_has_no_login() {
    let place = Place::not_started("", |config| {
        config.transport = McpTransport::Http {
            url: "http://127.0.0.1:1/mcp".into(),
            headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
        };
    });
    let login = McpLogin::begin(&place.servers.all()[0], LoginOptions::default()).await;
    assert!(matches!(login, Err(McpLoginError::NotPossible(_))));
    let wrong = forget_login(&place.path("logins"), "../t", None).await;
    assert!(matches!(wrong, Err(McpLoginError::NotPossible(_))));
}
