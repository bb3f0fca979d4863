//! The processes `serve` and `worker` with a real NATS server: the tests stop, kill and pause them.

use std::time::{Duration, Instant};

use allstop_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::mcp_server::shell_server;
use crate::support::{Ended, FACT_MAX, Place, Running, Signal, eventually, schema};

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

/// The limits of a front end hold, although other processes run its tasks.
#[test]
fn front_end_refuses_tasks_beyond_its_limits() {
    let cluster = Cluster::with_front_end("--max-tasks 1 --queue 1");
    let worker = cluster.deaf_worker();
    let running = cluster.send("first");
    cluster.begun();
    cluster.send("second");
    for text in ["third", "fourth"] {
        let (status, body) = cluster.try_send(text, text);
        assert_eq!(status, 429, "{body}");
        assert!(body.contains("too many tasks wait"), "{body}");
    }
    let path = format!(
        "POST /tasks/{}:cancel",
        running["id"].as_str().expect("an id")
    );
    let (status, body) = cluster.front.request(&path, "{}").expect("an answer");
    assert_eq!(status, 200, "{body}");
    let (status, body) = cluster.try_send("fifth", "fifth");
    assert_eq!(status, 200, "{body}");
    drop(worker.end_by(Signal::TERM));
    drop(cluster.front.running.end_by(Signal::TERM));
    cluster.place.assert_nothing_runs();
}

#[test]
fn stop_at_the_front_end_ends_the_shell_of_a_worker() {
    let cluster = Cluster::new();
    let worker = cluster.deaf_worker();
    let task = cluster.send("go");
    cluster.begun();
    eventually("the list counts it", || {
        let listed = cluster.workers("list").ok().stdout;
        listed.contains("1 of 16").then_some(())
    });
    // Other terminals see the front end and the worker by the servers of their store.
    let store = cluster.nats.url();
    let in_store = |args: &str| {
        let command = cluster.place.allstop().args(args);
        command.env("ALLSTOP_STORE", &store).end()
    };
    let listed = in_store("ps");
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    for part in ["ready  serve in process", "worker in process", "shell"] {
        assert!(listed.stdout.contains(part), "{}", listed.stdout);
    }
    assert!(listed.stderr.contains("is not listed"), "{}", listed.stderr);
    let preview = in_store("stop --all --preview");
    assert_eq!(preview.code, 0, "{}", preview.stderr);
    assert!(preview.stdout.contains("shell"), "{}", preview.stdout);
    assert!(
        preview.stderr.contains("is not searched"),
        "{}",
        preview.stderr
    );
    let stop = cluster.place.allstop().args("tasks --server");
    let stop = stop.arg(format!("http://{}", cluster.front.address));
    let stopped = stop
        .args("stop")
        .arg(task["id"].as_str().expect("an id"))
        .end();
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(!cluster.shell_runs(), "the receipt says that it is gone");
    assert!(
        stopped.stdout.contains("Nothing is left running"),
        "{}",
        stopped.stdout
    );
    assert_eq!(cluster.state(&task), "TASK_STATE_CANCELED");
    let ended = worker.end_by(Signal::TERM);
    assert_eq!(ended.code, 143);
    let said = "no task was stopped; nothing is left running\n";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(!ended.stderr.contains("presence"), "{}", ended.stderr);
    let waiting = cluster.send("later");
    let preview = cluster.place.allstop().args("tasks --server");
    let preview = preview.arg(format!("http://{}", cluster.front.address));
    let preview = preview
        .args("preview")
        .arg(waiting["id"].as_str().expect("an id"))
        .end();
    let said = "before its start. Nothing of it runs.";
    assert!(preview.ok().stdout.contains(said));
    let none = cluster.workers("list").ok().stdout;
    assert!(none.contains("no worker has a lease"), "{none}");
    assert_eq!(cluster.front.running.end_by(Signal::TERM).code, 143);
    cluster.place.assert_nothing_runs();
}

#[test]
fn task_of_a_killed_worker_ends_within_its_lease_and_a_second() {
    let cluster = Cluster::new();
    let mut first = cluster.deaf_worker();
    let task = cluster.send("go");
    cluster.begun();
    let _second = cluster.worker("--agent echo");
    first.signal(Signal::KILL);
    let killed_at = Instant::now();
    eventually("its shell goes with it", || {
        (!cluster.shell_runs()).then_some(())
    });
    eventually("the task has its end", || {
        (cluster.state(&task) != "TASK_STATE_WORKING").then_some(())
    });
    let took = killed_at.elapsed();
    // The time is short because the other worker has already been observing the lease. This test checks the task every
    // few milliseconds.
    assert!(took < LEASE + Duration::from_secs(2), "{took:?}");
}

/// A wake-up of a task is held longer than a short lease, unless the hold depends on the lease.
#[test]
fn task_of_a_killed_worker_with_a_short_lease_ends_within_it_and_a_second() {
    let times = "--grace 100ms --lease 3s";
    let lease = Duration::from_secs(3);
    let cluster = Cluster::new();
    let mut first = cluster.deaf_worker_with(times);
    let task = cluster.send("go");
    cluster.begun();
    let _second = cluster.worker_with(times, "--agent echo");
    first.signal(Signal::KILL);
    let killed_at = Instant::now();
    eventually("the task has its end", || {
        (cluster.state(&task) != "TASK_STATE_WORKING").then_some(())
    });
    let took = killed_at.elapsed();
    // As in the test with the long lease, one more second is for a slow machine.
    assert!(took < lease + Duration::from_secs(2), "{took:?}");
}

#[test]
fn mcp_server_of_a_paused_worker_is_gone_when_its_lease_is() {
    let cluster = Cluster::new();
    // The server starts with its worker, before the worker has a lease.
    let script = shell_server("echo $$ >server-pid", "[]", "continue");
    let server = cluster.place.file("server.sh", script);
    let config = format!(
        "[mcp.servers.s]\ncommand = \"sh\"\nargs = [\"{}\"]\n",
        server.display()
    );
    let config = cluster.place.file("server.toml", config);
    let script = cluster.place.script("replies: [{text: Done.}]");
    let agent = format!("--config {} --model {script}", config.display());
    let mut worker = cluster.worker_with("--grace 100ms --lease 3s", &agent);
    let pid_file = cluster.place.work().join("server-pid");
    let pid = || std::fs::read_to_string(&pid_file).unwrap_or_default();
    let process = |pid: &str| std::path::Path::new("/proc").join(pid.trim());
    let first = pid();
    eventually("the lease", || {
        let listed = cluster.workers("list").ok().stdout;
        listed.contains("0 of 16").then_some(())
    });
    assert!(process(&first).exists(), "its lease is renewed");
    worker.signal(Signal::STOP);
    eventually("the end of the server", || {
        (!process(&first).exists()).then_some(())
    });
    // The resumed worker starts the server again.
    worker.signal(Signal::CONT);
    eventually("the next server", || {
        let next = pid();
        (next != first && process(&next).exists()).then_some(())
    });
    assert_eq!(worker.end_by(Signal::TERM).code, 143);
}

#[test]
fn shell_of_a_paused_worker_is_gone_before_its_lease_is() {
    let cluster = Cluster::new();
    let mut first = cluster.deaf_worker();
    let task = cluster.send("go");
    cluster.begun();
    // The second worker takes over the task and its session, although the process that had opened the session is alive.
    let _second = cluster.deaf_worker();
    first.signal(Signal::STOP);
    eventually("the task has passed on", || {
        (cluster.state(&task) != "TASK_STATE_WORKING").then_some(())
    });
    assert!(!cluster.shell_runs(), "two owners would be at work");
    let before = cluster.state(&task);
    first.signal(Signal::CONT);
    // The resumed worker gets a new lease, and does not change its earlier tasks.
    eventually("the worker is back", || {
        (cluster.listed().len() == 2).then_some(())
    });
    assert_eq!(cluster.state(&task), before);
    let ended = first.end_by(Signal::TERM);
    assert_eq!(ended.code, 143);
    for said in ["lost the lease; ", "got a new lease"] {
        assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn lost_servers_are_reported_once_to_the_operator() {
    let mut cluster = Cluster::new();
    let task = cluster.send("waits for a worker");
    let ready = |cluster: &Cluster| cluster.front.request("GET /readyz", "").expect("an answer");
    assert_eq!(ready(&cluster).0, 200);
    cluster.nats.kill();
    eventually("it is not ready", || {
        (ready(&cluster).0 == 503).then_some(())
    });
    let id = task["id"].as_str().expect("an id");
    let stop = cluster
        .front
        .request(&format!("POST /tasks/{id}:cancel"), "{}");
    let (status, said) = stop.expect("an answer");
    assert_eq!(status, 503, "{said}");
    assert!(
        said.contains("the task store cannot be reached now"),
        "{said}"
    );
    assert!(!said.contains("127.0.0.1"), "{said}");
    cluster.nats.restart();
    eventually("it is ready again", || {
        (ready(&cluster).0 == 200).then_some(())
    });
    cluster.front.running.wait_stderr("reconnected to NATS");
    let ended = cluster.front.running.end_by(Signal::TERM);
    for said in ["lost the connection to NATS", "reconnected to NATS"] {
        assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    }
}

/// The worker of the task is killed, and no other worker takes over. So no process carries out the stop.
#[test]
fn stop_at_a_lost_worker_is_recorded_and_shown() {
    let cluster = Cluster::new();
    let mut worker = cluster.deaf_worker_with("--lease 1m");
    let task = cluster.send("go");
    cluster.begun();
    worker.signal(Signal::STOP);
    let tasks = |command: &str| {
        let tasks = cluster.place.allstop().args("tasks --server");
        let tasks = tasks.arg(format!("http://{}", cluster.front.address));
        let id = task["id"].as_str().expect("an id");
        // The front end waits up to 20 s for a worker that does not answer.
        tasks.args(command).arg(id).start().end(2 * FACT_MAX)
    };
    // A preview asks for no stop.
    let preview = tasks("preview").ok().stdout;
    let said = "does not answer: it is not known what runs; a stop would ask again";
    assert!(preview.contains(said), "{preview}");
    let stopped = tasks("stop");
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    let said = "the stop request is recorded";
    assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    let shown = tasks("show").ok().stdout;
    assert!(shown.contains(said), "{shown}");
    worker.signal(Signal::CONT);
    eventually("the worker carries it out", || {
        (cluster.state(&task) == "TASK_STATE_CANCELED").then_some(())
    });
}

/// Script of an agent whose command needs a permission. A task without `--yes` asks its client, and waits.
const ASKING: &str =
    "replies:\n- calls: [{tool: shell, arguments: {command: touch asked-for}}]\n- text: Done.\n";

/// The turn of a waiting task exists only at its worker. The front end lists the turn as long as the worker answers, and
/// names the worker after its loss.
#[test]
fn waiting_task_is_previewed_at_its_worker_and_not_proved_gone_with_it() {
    let cluster = Cluster::new();
    let agent = format!("--model {}", cluster.place.script(ASKING));
    let times = "--grace 100ms --lease 3s";
    let mut first = cluster.worker_with(times, &agent);
    let task = cluster.send("go");
    eventually("the question", || {
        (cluster.state(&task) == "TASK_STATE_INPUT_REQUIRED").then_some(())
    });
    let path = format!("POST /tasks/{}", task["id"].as_str().expect("an id"));
    let previewed = || {
        let preview = cluster
            .front
            .request(&format!("{path}:previewCancel"), "{}");
        let (status, body) = preview.expect("an answer");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let preview = previewed();
    assert_eq!(preview["items"][0]["name"], "shell", "{preview}");
    first.signal(Signal::KILL);
    let _second = cluster.worker_with(times, "--agent echo");
    let lost = previewed();
    assert_eq!(lost["items"][0]["state"], "unreachable", "{lost}");
    eventually("the lease of the lost worker ends", || {
        (cluster.listed().len() == 1).then_some(())
    });
    let (status, body) = cluster
        .front
        .request(&format!("{path}:cancel"), "{}")
        .expect("an answer");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("TASK_STATE_CANCELED"), "{body}");
    assert!(body.contains("\"unreachable\""), "{body}");
    assert!(body.contains("\"quiet\":false"), "{body}");
}

/// The last worker is lost, and no other worker runs. The front end reports that, and ends the task on a stop.
#[test]
fn front_end_reports_and_stops_the_task_of_the_last_worker_after_its_loss() {
    let cluster = Cluster::with_front_end("--grace 100ms --lease 3s");
    let mut worker = cluster.deaf_worker_with("--grace 100ms --lease 3s");
    let task = cluster.send("go");
    cluster.begun();
    worker.signal(Signal::KILL);
    eventually("the list shows the loss", || {
        let listed = cluster.workers("list").ok().stdout;
        (listed.contains("lost") || listed.contains("no worker")).then_some(())
    });
    let tasks = |command: &str| {
        let tasks = cluster.place.allstop().args("tasks --server");
        let tasks = tasks.arg(format!("http://{}", cluster.front.address));
        let id = task["id"].as_str().expect("an id");
        tasks.args(command).arg(id).start().end(2 * FACT_MAX)
    };
    eventually("the front end ends the lease", || {
        let shown = tasks("show").ok().stdout;
        shown.contains("the task's worker is lost").then_some(())
    });
    let listed = cluster.workers("list").ok().stdout;
    assert!(listed.contains("no worker has a lease"), "{listed}");
    let stopped = tasks("stop");
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    assert_eq!(cluster.state(&task), "TASK_STATE_CANCELED");
    let shown = tasks("show").ok().stdout;
    assert!(shown.contains("worker of the task before"), "{shown}");
    let (_, metrics) = cluster
        .front
        .request("GET /metrics", "")
        .expect("an answer");
    assert!(
        metrics.contains("allstop_messages_accepted_total 1\n"),
        "{metrics}"
    );
}

/// Without any front end, the time of the last renewal shows that a worker is lost.
#[test]
fn list_of_workers_shows_a_lost_worker_without_other_processes() {
    let place = Place::new();
    let nats = NatsServer::start(place.path("nats"));
    let cluster_args = |args: &str| place.allstop().args(args).arg("--store").arg(nats.url());
    let worker = cluster_args("worker --grace 100ms --lease 3s --agent echo").start();
    worker.wait_stdout("working, at most 16 tasks at a time");
    let state = || {
        let listed = cluster_args("workers list --json").end().ok().stdout;
        let listed: Value = serde_json::from_str(listed.trim()).unwrap_or_default();
        let state = &listed["workers"][0]["state"];
        state.as_str().unwrap_or_default().to_owned()
    };
    eventually("the lease", || (state() == "working").then_some(()));
    let mut worker = worker;
    worker.signal(Signal::KILL);
    eventually("its loss", || (state() == "lost").then_some(()));
    let listed = cluster_args("workers list").end().ok().stdout;
    assert!(listed.contains("lost"), "{listed}");
}

/// Each reply of the script contains the number of earlier replies in the conversation. This number shows that a worker
/// also gets the replies of the other worker.
#[test]
fn tasks_of_one_context_at_two_workers_are_one_conversation() {
    let cluster = Cluster::new();
    let replies = (1..=6).map(|number| format!("- text: reply {number}.\n"));
    let script = format!("replies:\n{}", replies.collect::<String>());
    let agent = format!("--yes --model {}", cluster.place.script(&script));
    let _workers = [cluster.worker(&agent), cluster.worker(&agent)];
    let tasks = [1, 2, 3, 4, 5, 6].map(|number| cluster.send_in("shared", &format!("m{number}")));
    let mut seen = Vec::new();
    for task in &tasks {
        eventually("the task is completed", || {
            (cluster.state(task) == "TASK_STATE_COMPLETED").then_some(())
        });
        let task = cluster
            .front
            .get(&format!("/tasks/{}", task["id"].as_str().expect("an id")));
        let text = task.to_string();
        let reply = (1..=6).find(|number| text.contains(&format!("reply {number}.")));
        seen.push(reply.unwrap_or_else(|| panic!("no reply: {text}")));
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

/// A front end counts its messages and their ends. The worker counts the executions.
#[test]
fn front_end_counts_messages_and_a_worker_counts_executions() {
    let cluster = Cluster::new();
    let args = "--metrics-listen 127.0.0.1:0 --agent echo";
    let worker = cluster.place.allstop().args("worker").args(args);
    let running = worker.args("--store").arg(cluster.nats.url()).start();
    let address = running.line_of_stdout("metrics on http://");
    let address = address.trim_end_matches("/metrics").to_owned();
    let worker = Server { running, address };
    let task = cluster.send("count me");
    eventually("the task is completed", || {
        (cluster.state(&task) == "TASK_STATE_COMPLETED").then_some(())
    });
    let metrics = |server: &Server| server.request("GET /metrics", "").expect("an answer").1;
    let at_front = eventually("the end is counted", || {
        let text = metrics(&cluster.front);
        let ended = "allstop_messages_ended_total{state=\"completed\"} 1";
        text.contains(ended).then_some(text)
    });
    assert!(
        at_front.contains("allstop_messages_accepted_total 1"),
        "{at_front}"
    );
    let none = "allstop_executions_accepted_total 0";
    assert!(at_front.contains(none), "{at_front}");
    let at_worker = metrics(&worker);
    for line in [
        "allstop_executions_accepted_total 1",
        "allstop_executions_ended_total{state=\"completed\"} 1",
    ] {
        assert!(at_worker.contains(line), "{at_worker}");
    }
    assert!(!at_worker.contains("allstop_messages_ended"), "{at_worker}");
    let open = cluster
        .place
        .allstop()
        .args("worker --metrics-listen 0.0.0.0:0 --agent echo");
    let open = open.args("--store").arg(cluster.nats.url()).end();
    assert_eq!(open.code, 2, "{}", open.stderr);
    assert!(
        open.stderr.contains("not a loopback address"),
        "{}",
        open.stderr
    );
}

#[test]
fn drained_worker_ends_by_itself() {
    let cluster = Cluster::new();
    let worker = cluster.worker("--drain 3s --agent echo");
    let listed = cluster.listed();
    let id = listed[0]["id"].as_str().expect("an id");
    let dead = cluster.workers("dead --json").ok().stdout;
    let dead = serde_json::from_str(&dead).expect("one object");
    schema::assert_valid("dead-letters", &dead);
    let drained = cluster.workers(&format!("drain {} --json", &id[20..])).ok();
    let drained: Value = serde_json::from_str(&drained.stdout).expect("one object");
    schema::assert_valid("worker-drain", &drained);
    assert_eq!(drained["worker"], id);
    let ended = worker.end(FACT_MAX);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("draining (`workers drain`)"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("at most"), "{}", ended.stderr);
    assert_eq!(cluster.workers("drain nobody").code, 2);
}

#[test]
fn wrong_use_says_what_to_do() {
    let place = Place::new();
    let no_store = place.allstop().args("worker --agent echo").end();
    assert_eq!(no_store.code, 2);
    assert!(
        no_store.stderr.contains("--store nats://HOST:4222"),
        "{}",
        no_store.stderr
    );
    let no_server = place
        .allstop()
        .args("worker --agent echo --store nats://127.0.0.1:1")
        .end();
    assert_eq!(no_server.code, 1);
    for said in [
        "NATS cannot be reached at nats://127.0.0.1:1: ",
        "check that the server runs",
    ] {
        assert!(no_server.stderr.contains(said), "{}", no_server.stderr);
    }
    assert!(
        !no_server.stderr.contains("the device"),
        "{}",
        no_server.stderr
    );
    let upper = place
        .allstop()
        .args("workers list --store NATS://127.0.0.1:1")
        .end();
    assert_eq!(upper.code, 1, "{}", upper.stderr);
    assert!(
        upper.stderr.contains("NATS cannot be reached"),
        "{}",
        upper.stderr
    );
    let short = place
        .allstop()
        .args("worker --agent echo --lease 3s --store nats://127.0.0.1:1")
        .end();
    assert_eq!(short.code, 2);
    assert!(short.stderr.contains("--lease 6s"), "{}", short.stderr);
}
