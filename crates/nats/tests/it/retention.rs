//! Removal of ended tasks with real servers: no message of a task stays on the servers.

use std::sync::Arc;
use std::time::Duration;

use allstop_log::{AppendId, Log, RecordBytes, StreamName, Version};
use allstop_task::{ListFilter, NoContextData, RetentionLimits, TaskRetention, TaskSummary};
use allstop_testkit::nats_server::{NatsCluster, NatsServer};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::cluster::{Node, SOON, node, request};
use crate::support::on_one_server;

const TASKS: usize = 10;

fn everything() -> TaskRetention {
    TaskRetention {
        limits: RetentionLimits::default().age_max(Duration::ZERO),
        contexts: Arc::new(NoContextData),
        attachments: Vec::new(),
    }
}

async fn listed(node: &Node) -> Vec<TaskSummary> {
    let page = node.manager.list(&ListFilter::default(), None, 100).await;
    page.expect("it works").tasks
}

/// Number of messages in a stream of the servers.
async fn messages(url: &str, stream: &str) -> u64 {
    let server = url.split(',').next().unwrap_or(url);
    let client = async_nats::connect(server).await.expect("a server");
    let context = async_nats::jetstream::new(client);
    let mut stream = context.get_stream(stream).await.expect("the stream exists");
    stream.info().await.expect("it works").state.messages
}

async fn removed_tasks_leave_no_message(url: String, replicas: usize) {
    let front = node(url.clone(), replicas, 0).await;
    let worker = node(url.clone(), replicas, 8).await;
    let mut ids = Vec::new();
    for number in 0..TASKS {
        let sent = front.manager.execute(request(&format!("short{number}")));
        ids.push(sent.await.expect("it works").task_id);
    }
    let ending = async {
        loop {
            let tasks = listed(&front).await;
            if tasks.len() == TASKS && tasks.iter().all(TaskSummary::has_ended) {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, ending).await.expect("the tasks end");
    assert_ne!(messages(&url, "allstop-log").await, 0);
    // Two nodes remove the tasks at the same time. A task may stay for a moment, until its worker has cleaned up.
    let removing = async {
        while !listed(&front).await.is_empty() {
            let retention = everything();
            let (first, second) = tokio::join!(
                front.manager.remove_ended(&retention),
                worker.manager.remove_ended(&retention)
            );
            first.and(second).expect("it works");
        }
    };
    timeout(SOON, removing)
        .await
        .expect("the tasks are removed");
    for id in &ids {
        worker.manager.get(id).await.expect_err("it is removed");
    }
    assert_eq!(messages(&url, "allstop-log").await, 0);

    // The subject of a removed task is as good as new.
    let again = front.manager.execute(request("short0")).await;
    assert_eq!(again.expect("it works").task_id, ids[0]);
    let report = worker.manager.shutdown(Duration::from_secs(5), "test");
    assert_eq!(report.await.not_stored, 0);
}

#[tokio::test]
async fn removed_tasks_leave_no_message_on_one_server() {
    let folder = TempDir::new().unwrap();
    let server = NatsServer::start(folder.path());
    removed_tasks_leave_no_message(server.url(), 1).await;
}

#[tokio::test]
async fn removed_tasks_leave_no_message_on_three_servers() {
    let folder = TempDir::new().unwrap();
    let servers = NatsCluster::start(folder.path());
    removed_tasks_leave_no_message(servers.url(), 3).await;
}

#[tokio::test]
async fn deleted_stream_with_pieces_leaves_no_message() {
    let (log, kept) = on_one_server().await;
    let name = StreamName::new("task/long");
    let records: Vec<RecordBytes> = vec![vec![7; 3 << 20].into()];
    let written = log.append(&name, Version(0), AppendId(1), records);
    assert_eq!(written.await.unwrap(), Version(1));
    assert!(messages(&kept.servers.url(), "allstop-log").await > 1);
    let outdated = log.delete_unchanged(vec![(name.clone(), Version(2))]).await;
    assert_eq!(outdated.unwrap(), []);
    let gone = log.delete_unchanged(vec![(name.clone(), Version(1))]).await;
    assert_eq!(gone.unwrap(), [name]);
    assert_eq!(messages(&kept.servers.url(), "allstop-log").await, 0);
}

#[tokio::test]
async fn entry_is_removed_only_at_its_revision() {
    let (log, kept) = on_one_server().await;
    let link = log.link().await.unwrap();
    let put = async |value: &str| {
        link.put("task/a/1", value.into(), None, None)
            .await
            .unwrap()
    };
    let first = put("1").await;
    let second = put("2").await;
    link.remove("task/a/1", first).await.unwrap();
    let entry = link.entry("task/a/1").await.unwrap().expect("it stays");
    assert_eq!((entry.revision, &*entry.value), (second, &b"2"[..]));
    link.remove("task/a/1", second).await.unwrap();
    assert_eq!(link.entry("task/a/1").await.unwrap(), None);
    assert_eq!(messages(&kept.servers.url(), "allstop-entries").await, 0);
    link.remove("task/a/1", second).await.unwrap();
    let again = link.put("task/a/1", b"3".to_vec(), Some(0), None).await;
    again.expect("the key has no value");
}
