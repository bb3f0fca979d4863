//! `allstop mcp login` and `allstop mcp logout`, with a server and an authorization server on a free local port.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command};

use crate::support::{Place, Signal, eventually};

/// A server that needs a token, and its authorization server, which asks the person nothing.
const SERVER: &str = r#"
import http.server, json, sys, urllib.parse
class Theirs(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def say(self, status, body, **headers):
        body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            self.say(200, {"resource": BASE + "/mcp", "authorization_servers": [BASE]})
        elif url.path == "/.well-known/oauth-authorization-server":
            self.say(200, {"issuer": BASE, "authorization_endpoint": BASE + "/authorize",
                "token_endpoint": BASE + "/token", "registration_endpoint": BASE + "/register",
                "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]})
        elif url.path == "/authorize":
            query = urllib.parse.parse_qs(url.query)
            back = query["redirect_uri"][0] + "?code=c&state=" + query["state"][0]
            self.say(302, {}, location=back)
        else:
            self.say(404, {})
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/register":
            self.say(201, dict(json.loads(body), client_id="registered"))
        elif self.path == "/token":
            self.say(200, {"access_token": "SECRET", "token_type": "Bearer", "expires_in": 3600})
        elif self.headers.get("authorization") != "Bearer SECRET":
            where = BASE + "/.well-known/oauth-protected-resource/mcp"
            self.say(401, {}, www_authenticate='Bearer resource_metadata="%s"' % where)
        else:
            message = json.loads(body)
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if message["method"] == "server/discover":
                result.update(supportedVersions=["2026-07-28"], capabilities={"tools": {}},
                    serverInfo={"name": "s", "version": "1"})
            else:
                result["tools"] = [{"name": "look", "inputSchema": {"type": "object"}}]
            self.say(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Theirs)
BASE = "http://127.0.0.1:%d" % server.server_port
with open(sys.argv[1] + ".new", "w") as file: file.write(BASE)
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
"#;

/// The server of the test. Dropping the value ends it.
struct Theirs(Child);

impl Drop for Theirs {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts the server, and adds it to the configuration under the name `t`.
fn start(place: &Place) -> Theirs {
    let program = place.file("server.py", SERVER);
    let address = place.path("address");
    let child = Command::new("python3").arg(program).arg(&address).spawn();
    let theirs = Theirs(child.expect("the command starts"));
    let base = eventually("the server listens", || fs::read_to_string(&address).ok());
    let add = format!("mcp add t --url {base}/mcp");
    place.allstop().args(&add).end().ok();
    theirs
}

fn visit(address: &str) {
    let visit = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])";
    let visited = Command::new("python3")
        .args(["-c", visit, address])
        .status();
    assert!(visited.expect("python3 starts").success());
}

#[test]
fn login_is_used_and_a_logout_removes_it() {
    let place = Place::new();
    let _theirs = start(&place);
    let refused = place.allstop().args("mcp test t").end();
    assert_eq!(refused.code, 1);
    let remedy = "run `allstop mcp login t`";
    assert!(refused.stdout.contains(remedy), "{}", refused.stdout);
    let login = place.allstop().args("mcp login t").start();
    let address = login.line_of_stdout("http://");
    visit(&format!("http://{address}"));
    let done = login.end(crate::support::FACT_MAX).ok();
    assert!(done.stdout.contains("t: logged in"), "{}", done.stdout);
    let file = token_file(&place).expect("a login");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let tested = place
        .allstop()
        .args("mcp test t")
        .env("ALLSTOP_LOG", "trace")
        .end()
        .ok();
    assert!(tested.stdout.contains("t__look"), "{}", tested.stdout);
    for shown in [&done.stdout, &done.stderr, &tested.stdout, &tested.stderr] {
        assert!(!shown.contains("SECRET"), "{shown}");
    }
    let removed = place.allstop().args("mcp logout t").end().ok();
    assert!(removed.stdout.contains("removed"), "{}", removed.stdout);
    assert!(!file.exists());
    let again = place.allstop().args("mcp logout t").end().ok();
    assert!(
        again.stdout.contains("there is no login"),
        "{}",
        again.stdout
    );
    assert_eq!(place.allstop().args("mcp login nope").end().code, 2);
}

/// The file with the tokens, if there is a login.
fn token_file(place: &Place) -> Option<std::path::PathBuf> {
    let folder = fs::read_dir(place.path("home/.local/share/allstop/logins"));
    let mut files = folder
        .into_iter()
        .flatten()
        .map(|file| file.expect("a file").path());
    files.find(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    })
}

#[test]
fn ctrl_c_ends_a_login_that_waits() {
    let place = Place::new();
    let _theirs = start(&place);
    let login = place.allstop().args("mcp login t").start();
    drop(login.line_of_stdout("http://"));
    assert_eq!(login.end_by(Signal::INT).code, 130);
    assert!(token_file(&place).is_none());
}
