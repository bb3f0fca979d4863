//! Front ends and workers that share tasks.

use std::time::Duration;

use serde_json::Value;

use super::Cluster;
use crate::serve::Server;
use crate::support::{FACT_MAX, Place, Signal, eventually, schema};

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

/// Regression: the third signal ended the loop that returns the lease, so the lease lasted until its expiry.
#[test]
fn forced_worker_returns_its_lease() {
    // On a busy machine, the short time after the third signal may end before the servers have answered.
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        let cluster = Cluster::new();
        let mut worker = cluster.deaf_worker_with("--lease 1m --drain 1m");
        let task = cluster.send("go");
        cluster.begun();
        worker
            .signal(Signal::TERM)
            .wait_stderr("draining for up to 1m");
        // Signals in quick succession count as one.
        std::thread::park_timeout(Duration::from_millis(200));
        worker.signal(Signal::TERM).wait_stderr("stopping: ");
        std::thread::park_timeout(Duration::from_millis(200));
        let ended = worker.end_by(Signal::TERM);
        if ended.code == 1 && ended.stderr.contains("time limit reached") {
            continue;
        }
        assert_eq!(ended.code, 143, "{}", ended.stderr);
        assert!(cluster.listed().is_empty(), "{}", ended.stderr);
        assert_eq!(cluster.state(&task), "TASK_STATE_CANCELED");
        return;
    }
    panic!("the time was too short {TRIES} times");
}

/// Regression: the exit code was 143 if the time limit came before the report.
#[test]
fn worker_that_cannot_store_ends_exits_with_1() {
    let mut cluster = Cluster::new();
    let worker = cluster.deaf_worker_with("--grace 100ms --lease 1m");
    cluster.send("go");
    cluster.begun();
    cluster.nats.kill();
    let ended = worker.end_by(Signal::TERM);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let said = "the store lacks ends of stopped tasks";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
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
