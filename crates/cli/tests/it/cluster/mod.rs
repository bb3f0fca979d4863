//! The processes `serve` and `worker` with a real NATS server: the tests stop, kill and pause them.

mod lost_workers;
mod shared_work;

use std::time::{Duration, Instant};

use allstop_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::{Ended, Place, Running, eventually, schema};

/// Lease of the workers in these tests: a worker that cannot renew its lease for this time stops its tasks. It is
/// short, but long enough for the default grace.
const LEASE: Duration = Duration::from_secs(8);

/// Script of an agent whose shell command ignores SIGTERM and runs until it is killed.
const DEAF: &str = "replies:\n- calls: [{tool: shell, arguments: {command: \
                    \"trap '' TERM; echo $$ > began; while :; do sleep 0.05; date +%s%N > alive; done\"}}]\n";

struct Cluster {
    place: Place,
    nats: NatsServer,
    front: Server,
}

impl Cluster {
    fn new() -> Self {
        Self::with_front_end("")
    }

    fn with_front_end(flags: &str) -> Self {
        let place = Place::new();
        let nats = NatsServer::start(place.path("nats"));
        let serve = place.allstop().args("serve --listen 127.0.0.1:0 --store");
        let running = serve.arg(nats.url()).args(flags).start();
        let address = running.line_of_stdout("listening on http://");
        Self {
            place,
            nats,
            front: Server { running, address },
        }
    }

    fn worker(&self, agent: &str) -> Running {
        self.worker_with("--lease 8s", agent)
    }

    fn worker_with(&self, lease: &str, agent: &str) -> Running {
        let worker = self.place.allstop().args("worker").args(lease);
        let worker = worker.args("--store").arg(self.nats.url());
        let worker = worker.args(agent).start();
        worker.wait_stdout("working, at most 16 tasks at a time");
        worker
    }

    fn deaf_worker(&self) -> Running {
        self.deaf_worker_with("--lease 8s")
    }

    fn deaf_worker_with(&self, lease: &str) -> Running {
        let agent = format!("--yes --model {}", self.place.script(DEAF));
        self.worker_with(lease, &agent)
    }

    /// The workers that have a lease.
    fn listed(&self) -> Vec<Value> {
        let listed = self.workers("list --json").ok().stdout;
        let listed: Value = serde_json::from_str(&listed).expect("one object");
        schema::assert_valid("workers", &listed);
        listed["workers"].as_array().expect("a list").clone()
    }

    fn workers(&self, args: &str) -> Ended {
        let workers = self
            .place
            .allstop()
            .args("workers")
            .args(args)
            .args("--store");
        workers.arg(self.nats.url()).end()
    }

    fn send(&self, text: &str) -> Value {
        self.send_in(text, text)
    }

    fn send_in(&self, context: &str, text: &str) -> Value {
        let (status, body) = self.try_send(context, text);
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["task"].clone()
    }

    fn try_send(&self, context: &str, text: &str) -> (u16, String) {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {
                "messageId": text,
                "contextId": context,
                "role": "ROLE_USER",
                "parts": [{"text": text}],
            },
        });
        let sent = self.front.request("POST /message:send", &body.to_string());
        sent.expect("an answer")
    }

    fn state(&self, task: &Value) -> String {
        let id = task["id"].as_str().expect("an id");
        let task = self.front.get(&format!("/tasks/{id}"));
        task["status"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    fn begun(&self) {
        let began = self.place.work().join("began");
        eventually("the shell runs", || began.exists().then_some(()));
    }

    /// The last sign of life of the shell command: it writes the time into a file again and again.
    fn sign_of_life(&self) -> Option<String> {
        std::fs::read_to_string(self.place.work().join("alive")).ok()
    }

    fn shell_runs(&self) -> bool {
        let before = self.sign_of_life();
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            if self.sign_of_life() != before {
                return true;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        false
    }
}
