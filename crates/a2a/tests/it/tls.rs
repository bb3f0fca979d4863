//! TLS: both versions of HTTP, gRPC, clients that violate the protocol, and new certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{ServerOptions, ServerTls, TlsFilesError};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertifiedKey;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::grpc_request;
use crate::test_server::{SOON, TestServer, read_to_end};

/// Certificate for `localhost`, in files.
struct CertificateFiles {
    folder: tempfile::TempDir,
}

impl CertificateFiles {
    fn new() -> (Self, CertificateDer<'static>) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Self { folder };
        let certificate = files.renew();
        (files, certificate)
    }

    /// Writes a new certificate.
    fn renew(&self) -> CertificateDer<'static> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let CertifiedKey { cert, signing_key } = pair.expect("a certificate");
        std::fs::write(self.certificate(), cert.pem()).expect("a file");
        std::fs::write(self.key(), signing_key.serialize_pem()).expect("a file");
        cert.der().clone()
    }

    fn certificate(&self) -> std::path::PathBuf {
        self.folder.path().join("certificate.pem")
    }

    fn key(&self) -> std::path::PathBuf {
        self.folder.path().join("key.pem")
    }

    fn open(&self) -> Result<ServerTls, TlsFilesError> {
        ServerTls::open(self.certificate(), self.key())
    }
}

fn options(tls: &ServerTls) -> ServerOptions {
    ServerOptions::default()
        .head_time_max(Duration::from_millis(300))
        .tls(tls.clone())
}

/// Connects as a client that trusts only this certificate and offers this protocol.
async fn connect(
    server: &TestServer,
    trusted: &CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, server.connect().await);
    tokio::time::timeout(SOON, connecting)
        .await
        .expect("in time")
}

const CARD: &[u8] =
    b"GET /.well-known/agent-card.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn http_1_over_tls() {
    let (files, certificate) = CertificateFiles::new();
    let server = TestServer::of(
        crate::support::router().await,
        options(&files.open().unwrap()),
    )
    .await;
    let mut stream = connect(&server, &certificate, "http/1.1").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(CARD).await.unwrap();
    assert!(read_to_end(&mut stream).await.contains("200 OK"));
}

#[tokio::test]
async fn http_2_and_grpc_over_tls() {
    let (files, certificate) = CertificateFiles::new();
    let server = TestServer::of(
        crate::support::router().await,
        options(&files.open().unwrap()),
    )
    .await;
    let stream = connect(&server, &certificate, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), io)
            .await
            .unwrap();
    let requests = async {
        let card = Request::get("https://localhost/.well-known/agent-card.json");
        let card = sender.send_request(card.body(Body::empty()).unwrap()).await;
        assert_eq!(card.unwrap().status(), StatusCode::OK);
        let mut list = grpc_request("ListTasks", &[]);
        let uri = format!("https://localhost{}", list.uri());
        *list.uri_mut() = uri.parse().unwrap();
        let listed = sender.send_request(list).await;
        let listed = listed.unwrap().into_body().collect().await.unwrap();
        assert_eq!(listed.trailers().unwrap()["grpc-status"], "0");
        drop(sender);
    };
    let (ended, ()) = tokio::join!(connection, requests);
    ended.unwrap();
}

#[tokio::test]
async fn silent_and_plain_clients_are_closed() {
    let (files, certificate) = CertificateFiles::new();
    let server = TestServer::of(
        crate::support::router().await,
        options(&files.open().unwrap()),
    )
    .await;
    // Clients without a handshake, with half a handshake, with plain HTTP, and with silence after the handshake.
    let mut silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    let mut plain = server.connect().await;
    plain.write_all(CARD).await.unwrap();
    let mut shaken = connect(&server, &certificate, "h2").await.unwrap();
    read_to_end(&mut silent).await;
    read_to_end(&mut half).await;
    let answer = read_to_end(&mut plain).await;
    assert!(!answer.contains("HTTP/1"), "{answer}");
    read_to_end(&mut shaken).await;
    // Another client is not affected.
    let mut good = connect(&server, &certificate, "http/1.1").await.unwrap();
    good.write_all(CARD).await.unwrap();
    assert!(read_to_end(&mut good).await.contains("200 OK"));
}

#[tokio::test]
async fn stop_ends_handshakes() {
    let (files, _) = CertificateFiles::new();
    let options = options(&files.open().unwrap()).head_time_max(Duration::from_mins(10));
    let server = TestServer::of(crate::support::router().await, options).await;
    let mut half = server.connect().await;
    half.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    // The server accepts the half-open connection before the next connection. It closes the next connection because of
    // its plain text.
    let mut plain = server.connect().await;
    plain.write_all(CARD).await.unwrap();
    read_to_end(&mut plain).await;
    let cause = allstop_core::Cause::new(allstop_core::CauseKind::Shutdown);
    let stop = allstop_scope::StopRequest::new(allstop_core::Extent::Process, cause);
    let receipt = server.scope.stop(stop).await;
    assert!(receipt.quiet(), "{receipt:?}");
    read_to_end(&mut half).await;
}

#[tokio::test]
async fn new_certificate_is_used_and_a_broken_one_is_not() {
    let (files, first) = CertificateFiles::new();
    let tls = files.open().unwrap();
    let server = TestServer::of(crate::support::router().await, options(&tls)).await;
    assert!(!tls.reload().unwrap(), "nothing has changed");
    let mut early = connect(&server, &first, "http/1.1").await.unwrap();
    let second = files.renew();
    assert!(tls.reload().unwrap());
    assert!(
        connect(&server, &first, "h2").await.is_err(),
        "the old one is gone"
    );
    connect(&server, &second, "h2").await.unwrap();
    // Existing connections keep the certificate with which they began.
    early.write_all(CARD).await.unwrap();
    let mut byte = [0];
    early.read_exact(&mut byte).await.unwrap();

    let good = std::fs::read(files.key()).unwrap();
    std::fs::write(files.key(), "half a fi").unwrap();
    assert!(matches!(tls.reload(), Err(TlsFilesError::Key(..))));
    assert!(!tls.reload().unwrap(), "the same fault is reported once");
    connect(&server, &second, "h2").await.unwrap();
    std::fs::remove_file(files.key()).unwrap();
    assert!(matches!(tls.reload(), Err(TlsFilesError::Read(..))));
    connect(&server, &second, "h2").await.unwrap();
    std::fs::write(files.key(), good).unwrap();
    assert!(tls.reload().unwrap());
    connect(&server, &second, "h2").await.unwrap();
}

#[test]
fn unusable_files_are_named() {
    let (files, _) = CertificateFiles::new();
    let (other, _) = CertificateFiles::new();
    let open = |certificate: &Path, key: &Path| {
        let refused = ServerTls::open(certificate, key).expect_err("unusable");
        allstop_core::error_chain(&refused)
    };
    let (certificate, key) = (files.certificate(), files.key());
    let missing = files.folder.path().join("missing");
    let write = |name: &str, text: &[u8]| {
        let path = files.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let garbage = write("garbage", b"\x00\xff certificate");
    let broken = write(
        "broken",
        b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
    );
    let not_x509 = write(
        "zeros",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let large = write("large", &vec![b' '; 2 << 20]);
    for (text, expected) in [
        (open(&missing, &key), "missing cannot be read"),
        (open(&certificate, &missing), "missing cannot be read"),
        (open(&garbage, &key), "garbage has no certificate"),
        (open(&certificate, &garbage), "garbage has no private key"),
        (open(&key, &key), "has no certificate"),
        (open(&certificate, &certificate), "has no private key"),
        (
            open(&certificate, &other.key()),
            "does not match the certificate",
        ),
        (open(&broken, &key), "broken is broken"),
        (open(&not_x509, &key), "zeros cannot be used"),
        (open(&large, &key), "wrong file"),
    ] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
}
