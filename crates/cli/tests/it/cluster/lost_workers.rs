//! Workers that are killed, paused or lost.

use std::time::{Duration, Instant};

use allstop_testkit::nats_server::NatsServer;
use serde_json::Value;

use super::{Cluster, LEASE};
use crate::support::mcp_server::shell_server;
use crate::support::{FACT_MAX, Place, Signal, eventually};

/// Script of an agent whose command needs a permission. A task without `--yes` asks its client, and waits.
const ASKING: &str =
    "replies:\n- calls: [{tool: shell, arguments: {command: touch asked-for}}]\n- text: Done.\n";

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

/// Parts of the status that names the shell command of a lost worker.
const LOST_SHELL: &str = "not in the conversation: shell `trap";
const LOST_OUTCOME: &str = ": outcome unknown; check before repeating it";

/// The stop is requested before the lease of the lost worker ends. Another worker carries it out.
#[test]
fn stop_at_the_next_worker_names_the_calls_of_the_lost_one() {
    let cluster = Cluster::new();
    let times = "--grace 100ms --lease 3s";
    let mut first = cluster.deaf_worker_with(times);
    let task = cluster.send("go");
    cluster.begun();
    let _second = cluster.deaf_worker_with(times);
    first.signal(Signal::KILL);
    let id = task["id"].as_str().expect("an id");
    let stopped = cluster
        .front
        .request(&format!("POST /tasks/{id}:cancel"), "{}");
    let (status, body) = stopped.expect("an answer");
    assert_eq!(status, 200, "{body}");
    for part in [
        "TASK_STATE_CANCELED",
        LOST_SHELL,
        LOST_OUTCOME,
        "\"quiet\":false",
    ] {
        assert!(body.contains(part), "{part:?} is not in {body}");
    }
    assert!(body.contains("\"unreachable\""), "{body}");
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
    eventually("the list has no lease", || {
        let listed = cluster.workers("list").ok().stdout;
        listed.contains("no worker has a lease").then_some(())
    });
    let stopped = tasks("stop");
    assert_eq!(stopped.code, 1, "{}", stopped.stderr);
    assert_eq!(cluster.state(&task), "TASK_STATE_CANCELED");
    let shown = tasks("show").ok().stdout;
    for part in ["worker of the task before", LOST_SHELL, LOST_OUTCOME] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
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
