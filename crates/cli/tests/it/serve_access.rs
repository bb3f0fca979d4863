//! `allstop serve` with the protection for clients on other machines: TLS, signed tokens, rate limits, and errors for
//! wrong flags.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::CertifiedKey;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::support::wait::eventually;
use crate::support::{Place, Running, Signal};

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Issuer of signed tokens, with one key.
struct TokenIssuer(EcdsaKeyPair);

impl TokenIssuer {
    fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key"))
    }

    fn jwks(&self) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "x": x, "y": y}]}).to_string()
    }

    fn token(&self, subject: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let exp = now.expect("after 1970").as_secs() + 600;
        let header = json!({"alg": "ES256", "kid": "k"}).to_string();
        let claims = json!({"iss": "https://i", "aud": "a", "sub": subject, "exp": exp});
        let message = format!("{}.{}", base64url(header), base64url(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes());
        format!("{message}.{}", base64url(signature.expect("a signature")))
    }
}

/// Writes a certificate for `localhost` into the files `cert` and `key`.
fn write_certificate(place: &Place) -> (PathBuf, PathBuf, CertificateDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
    let CertifiedKey { cert, signing_key } = pair.expect("a certificate");
    let certificate = place.file("cert", cert.pem());
    let key = place.file("key", signing_key.serialize_pem());
    (certificate, key, cert.der().clone())
}

/// Sends a request over TLS, and returns status and body of the answer; `None` if no TLS connection is possible.
fn request(
    address: &str,
    trusted: &CertificateDer<'static>,
    path: &str,
    token: &str,
) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = TcpStream::connect(address).expect("a connection");
    let mut stream = StreamOwned::new(client, stream);
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

fn start(place: &Place, flags: &[&dyn AsRef<std::ffi::OsStr>]) -> Running {
    let mut serve = place
        .allstop()
        .args("serve --agent echo --listen 127.0.0.1:0 --store")
        .arg(place.store())
        .env("ALLSTOP_LOG", "warn");
    for flag in flags {
        serve = serve.arg(flag.as_ref());
    }
    serve.start()
}

#[test]
fn tls_and_signed_tokens() {
    let place = Place::new();
    let (certificate, key, first) = write_certificate(&place);
    let issuer = TokenIssuer::new();
    let jwks = place.file("jwks", issuer.jwks());
    let running = start(
        &place,
        &[
            &"--tls-cert",
            &certificate,
            &"--tls-key",
            &key,
            &"--jwks",
            &jwks,
            &"--issuer",
            &"https://i",
            &"--audience",
            &"a",
            &"--grpc-listen",
            &"127.0.0.1:0",
            &"--max-tasks",
            &"7",
        ],
    );
    let address = running.line_of_stdout("listening on https://");
    let grpc = running.line_of_stdout("listening for gRPC on ");
    let card = "/.well-known/agent-card.json";
    let (status, card) = request(&address, &first, card, "").expect("an answer");
    assert_eq!(status, 200);
    let card: Value = serde_json::from_str(&card).expect("JSON");
    let interfaces = &card["supportedInterfaces"];
    assert_eq!(interfaces[0]["url"], format!("https://{address}"));
    assert_eq!(interfaces[2]["url"], format!("https://{grpc}"));
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);

    let status = |token: &str| request(&address, &first, "/tasks", token).map(|(status, _)| status);
    let token = issuer.token("alice");
    assert_eq!(status(&token), Some(200));
    assert_eq!(status("forged"), Some(401));
    assert_eq!(status(&TokenIssuer::new().token("alice")), Some(401));
    let (_, extended) = request(&address, &first, "/extendedAgentCard", &token).expect("a card");
    assert!(extended.contains("jwt:alice"), "{extended}");
    assert!(extended.contains("maxTasks"), "{extended}");
    // The address for gRPC serves only gRPC, with the same certificate.
    let health = request(&grpc, &first, "/healthz", "").expect("an answer");
    assert_ne!(health.1, "ok\n");

    let other = TokenIssuer::new();
    place.file("jwks", other.jwks());
    let (_, _, second) = write_certificate(&place);
    eventually("the new key and the new certificate are used", || {
        let token = other.token("alice");
        let (status, _) = request(&address, &second, "/tasks", &token)?;
        (status == 200).then_some(())
    });
    assert_eq!(request(&address, &first, "/tasks", &token), None);
    // A broken certificate file must change nothing. The server checks its files in a fixed order. So after it has
    // loaded new keys twice, it has also checked the broken file.
    place.file("cert", "broken");
    for round in ["third", "fourth"] {
        let issuer = TokenIssuer::new();
        place.file("jwks", issuer.jwks());
        eventually(&format!("the {round} key is used"), || {
            let (status, _) = request(&address, &second, "/tasks", &issuer.token("alice"))?;
            (status == 200).then_some(())
        });
    }
    let ended = running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143);
    let warnings = ended.stderr.matches("cert has no certificate").count();
    assert_eq!(warnings, 1, "{}", ended.stderr);
}

#[test]
fn requests_beyond_the_limit_are_refused() {
    let place = Place::new();
    let running = start(&place, &[&"--rate-limit", &"1"]);
    let address = running.line_of_stdout("listening on http://");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(get("/tasks").contains("200 OK"));
    let refused = get("/tasks");
    assert!(refused.contains("429"), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    for _ in 0..3 {
        assert!(get("/healthz").contains("200 OK"));
    }
    assert_eq!(running.end_by(Signal::TERM).code, 143);
}

#[test]
fn wrong_usage_is_refused_at_the_start() {
    let place = Place::new();
    let (certificate, key, _) = write_certificate(&place);
    let (certificate, key) = (certificate.as_path(), key.as_path());
    let good_jwks = place.file("good", TokenIssuer::new().jwks());
    let no_jwks = place.file("no_jwks", "{}");
    let (good, bad) = (good_jwks.as_path(), no_jwks.as_path());
    let path = Path::new;
    let issuer = [path("--issuer"), path("i"), path("--audience"), path("a")];
    let with_issuer = |jwks: &'static str| [&[path("--jwks"), path(jwks)], &issuer[..]].concat();
    for (flags, code, expected) in [
        (vec![path("--tls-cert"), certificate], 2, "--tls-key"),
        (vec![path("--tls-key"), key], 2, "--tls-cert"),
        (
            vec![path("--tls-cert"), key, path("--tls-key"), key],
            2,
            "has no certificate",
        ),
        (
            vec![path("--tls-cert"), path("/none"), path("--tls-key"), key],
            2,
            "/none cannot be read",
        ),
        (vec![path("--jwks"), good], 2, "--issuer"),
        (vec![path("--issuer"), path("i")], 2, "--jwks"),
        (vec![path("--audience"), path("a")], 2, "--jwks"),
        (
            [&[path("--jwks"), bad], &issuer[..]].concat(),
            2,
            "key set is not JSON",
        ),
        (with_issuer("http://issuer.example/keys"), 2, "https://"),
        (
            with_issuer("http://127.0.0.1:1/keys"),
            1,
            "cannot be fetched",
        ),
        (vec![path("--rate-limit"), path("0")], 2, "--rate-limit"),
        (
            vec![path("--grpc-listen"), path("0.0.0.0:0")],
            2,
            "0.0.0.0:0 is reachable",
        ),
    ] {
        let mut serve = place
            .allstop()
            .args("serve --agent echo --listen 127.0.0.1:0 --store")
            .arg(place.store());
        for flag in &flags {
            serve = serve.arg(flag);
        }
        let refused = serve.end();
        assert_eq!(refused.code, code, "{flags:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains(expected),
            "{flags:?}: {}",
            refused.stderr
        );
    }
}
