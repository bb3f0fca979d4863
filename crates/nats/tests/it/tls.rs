//! Connections with TLS and a password.

use std::fs;

use allstop_log::{Log, StreamName, Version};
use allstop_nats::{ConnectError, NatsLog, NatsOptions};
use allstop_testkit::nats_server::NatsServer;
use allstop_testkit::own_loopback::own_host;
use rcgen::CertifiedKey;
use tempfile::TempDir;

use crate::support::scope;

#[tokio::test]
async fn connection_with_tls_needs_the_authority_and_the_password() {
    let folder = TempDir::new().unwrap();
    let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
    let pair = rcgen::generate_simple_self_signed([own_host().to_string()]);
    let CertifiedKey {
        cert: made,
        signing_key,
    } = pair.unwrap();
    fs::write(&cert, made.pem()).unwrap();
    fs::write(&key, signing_key.serialize_pem()).unwrap();
    let configuration = format!(
        "tls {{ cert_file: {cert:?}, key_file: {key:?} }}\n\
         authorization {{ user: joe, password: secret }}\n"
    );
    let server = NatsServer::start_with(folder.path(), &configuration);
    let address = server.url().replace("nats://", "");
    let open = async |user: &str, is_trusted: bool| {
        let mut options = NatsOptions::new(format!("tls://{user}@{address}"));
        options.authorities = is_trusted.then(|| cert.clone());
        NatsLog::open(options, &scope()).await
    };
    let log = open("joe:secret", true).await.unwrap();
    let read = log.read(&StreamName::new("s"), Version(1), 1).await;
    assert_eq!(read.unwrap(), []);
    for (user, is_trusted) in [("joe:wrong", true), ("joe:secret", false)] {
        let refused = open(user, is_trusted).await;
        assert!(
            matches!(refused, Err(ConnectError::Unreachable { .. })),
            "{user}"
        );
    }
}
