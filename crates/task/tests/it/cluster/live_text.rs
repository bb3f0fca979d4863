//! Live text of tasks that run at another node.

use std::sync::Arc;
use std::time::Duration;

use allstop_task::{ExecutionCx, ExecutorReturn, TaskEvent, TaskState};
use futures::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::support::{Cluster, LEASE};
use crate::live_text::{PIECES_PER_SECOND, Reader, numbers, writer};
use crate::support::{SOON, ScriptedExecutor, request, user};

#[tokio::test(start_paused = true)]
async fn text_at_another_node_is_shown_while_it_arrives_at_most_twenty_times_a_second() {
    let cluster = Cluster::new();
    let gate = Arc::new(Semaphore::new(1));
    let front = cluster.front_end();
    let _worker = cluster.worker(&writer(100, Duration::from_millis(10), &gate));
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let id = accepted.task_id.clone();
    let (mut reader, mut live) = (Reader::default(), accepted.subscription.with_live_text());
    reader.read(&mut live, Some(" 50 ")).await;
    assert!(reader.text.starts_with(&numbers(51)), "{}", reader.text);
    // A later subscriber gets the text from its beginning.
    let late = front.manager.subscribe(&id, None).await.unwrap();
    let (mut late_reader, mut late) = (Reader::default(), late.with_live_text());
    late_reader.read(&mut late, Some(" 60 ")).await;
    assert!(late_reader.text.starts_with(&numbers(61)));
    reader.read(&mut live, None).await;
    let shown = PIECES_PER_SECOND - 4..=PIECES_PER_SECOND + 1;
    assert!(shown.contains(&reader.pieces), "{}", reader.pieces);
    assert_eq!(reader.text, "final");
    let end = &reader.words[reader.words.len() - 2..];
    assert_eq!(end, ["artifact", "ended"], "no piece follows the artifact");
}

/// An executor that writes live text until it is stopped: other text after a take-over.
fn endless_writer() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx: ExecutionCx| async move {
        let working = TaskEvent::state(TaskState::Working);
        cx.events.write(working).await.expect("it runs");
        cx.live_text.restart("answer", None);
        let word = if cx.is_resumed { "second " } else { "first " };
        for _ in 0..10 {
            cx.live_text.push(word);
        }
        cx.scope.stopped_at("waiting").await;
        Ok(ExecutorReturn::Finished)
    })
    .resumable()
}

#[tokio::test(start_paused = true)]
async fn text_of_the_next_worker_replaces_the_text_of_a_lost_one() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless_writer());
    let first = cluster.worker(&executor);
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let (mut reader, mut live) = (Reader::default(), accepted.subscription.with_live_text());
    reader.read(&mut live, Some("first ")).await;
    assert_eq!(reader.text, "first ".repeat(10));
    let _second = cluster.worker(&executor);
    first.kill().await;
    sleep(2 * LEASE).await;
    reader.read(&mut live, Some("second ")).await;
    assert_eq!(reader.text, "second ".repeat(10));
}

/// More subscribers than a worker answers at the same time.
#[tokio::test(start_paused = true)]
async fn many_subscribers_do_not_delay_a_stop() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless_writer());
    let _worker = cluster.worker(&executor);
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let id = accepted.task_id.clone();
    let mut subscribers = Vec::new();
    for _ in 0..600 {
        let subscription = front.manager.subscribe(&id, None).await.unwrap();
        subscribers.push(subscription.with_live_text());
    }
    let reading = join_all(subscribers.iter_mut().map(async |live| {
        let mut reader = Reader::default();
        reader.read(live, None).await;
        reader
    }));
    let stopping = async {
        sleep(Duration::from_secs(5)).await;
        let begun = Instant::now();
        let stopped = front.manager.cancel(&id, user()).await.unwrap();
        assert!(stopped.receipt.quiet() && stopped.receipt.cancel_observed());
        begun.elapsed()
    };
    let (readers, took) = timeout(SOON * 3, async { tokio::join!(reading, stopping) })
        .await
        .unwrap();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(readers.iter().all(|reader| reader.pieces >= 1));
}
