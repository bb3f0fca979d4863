//! Connections with a credentials file. Servers with accounts require such a file.

use std::fs;

use allstop_log::{Log, StreamName, Version};
use allstop_nats::{ConnectError, NatsLog, NatsOptions};
use allstop_testkit::nats_server::NatsServer;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::scope;

/// Creates a JWT in the format of the servers: `issuer` signs the JWT with an nkey, and the JWT describes the key
/// `subject`.
fn token(issuer: &KeyPair, subject: &KeyPair, claims: &Value) -> String {
    let payload = json!({
        "iat": 1_700_000_000,
        "iss": issuer.public_key(),
        "sub": subject.public_key(),
        "jti": subject.public_key(),
        "name": "test",
        "nats": claims,
    });
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{header}.{}", encode(payload.to_string().as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).expect("it has a seed");
    format!("{signed}.{}", encode(&signature))
}

fn user_file(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let token = token(account, &user, &claims);
    let seed = user.seed().expect("it has a seed");
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

/// Configuration of a server that accepts users of this account.
fn accounts(account: &KeyPair) -> String {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    let of_account = |limits: &Value| json!({"type": "account", "version": 2, "limits": limits});
    let of_system = token(&operator, &system, &of_account(&limits));
    for unlimited in ["mem_storage", "disk_storage", "streams", "consumer"] {
        limits[unlimited] = json!(-1);
    }
    let of_users = token(&operator, account, &of_account(&limits));
    let of_operator = json!({"type": "operator", "version": 2});
    format!(
        "operator: {}\nsystem_account: {system}\nresolver: MEMORY\n\
         resolver_preload: {{ {system}: {of_system}, {}: {of_users} }}\n",
        token(&operator, &operator, &of_operator),
        account.public_key(),
        system = system.public_key(),
    )
}

#[tokio::test]
async fn connection_with_credentials_of_an_account() {
    let folder = TempDir::new().unwrap();
    let (mine, other) = (KeyPair::new_account(), KeyPair::new_account());
    let server = NatsServer::start_with(folder.path(), &accounts(&mine));
    let open = async |credentials: Option<String>| {
        let mut options = NatsOptions::new(server.url());
        options.credentials = credentials.map(|text| {
            let path = folder.path().join("user.creds");
            fs::write(&path, text).unwrap();
            path
        });
        NatsLog::open(options, &scope()).await
    };
    let log = open(Some(user_file(&mine))).await.unwrap();
    let read = log.read(&StreamName::new("s"), Version(1), 1).await;
    assert_eq!(read.unwrap(), []);
    for credentials in [None, Some(user_file(&other))] {
        let refused = open(credentials).await;
        assert!(matches!(refused, Err(ConnectError::Unreachable { .. })));
    }
    let refused = open(Some("no credentials".to_owned())).await;
    assert!(matches!(refused, Err(ConnectError::Credentials(_))));
}
