//! Live text of an artifact: pieces for display that no log contains.

use std::sync::Arc;
use std::time::Duration;

use allstop_log::Version;
use allstop_task::model::Artifact;
use allstop_task::{
    AcceptedTask, ExecutorReturn, LiveItem, LiveSubscription, SubscriptionItem, TaskEvent,
    TaskRecord, TaskState,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{SOON, ScriptedExecutor, ended, manager_of, request, rest, user};

/// Pieces per second for one subscriber.
pub(crate) const PIECES_PER_SECOND: usize = 20;

/// Executor that writes `pieces` with a pause after each, and then the artifact `answer`. Before the artifact, it waits
/// for a permit of `gate`.
pub(crate) fn writer(pieces: usize, pause: Duration, gate: &Arc<Semaphore>) -> ScriptedExecutor {
    let gate = Arc::clone(gate);
    ScriptedExecutor::new(move |cx| {
        let gate = Arc::clone(&gate);
        async move {
            let write = |event| cx.events.write(event);
            write(TaskEvent::state(TaskState::Working))
                .await
                .expect("it runs");
            cx.live_text.restart("answer", None);
            for number in 0..pieces {
                cx.live_text.push(&format!("{number} "));
                sleep(pause).await;
            }
            tokio::select! {
                permit = gate.acquire() => permit.expect("open").forget(),
                _cause = cx.scope.stopped_at("waiting") => return Ok(ExecutorReturn::Finished),
            }
            write(TaskEvent::artifact(Artifact::text("answer", "final")))
                .await
                .expect("it runs");
            write(TaskEvent::state(TaskState::Completed))
                .await
                .expect("it runs");
            Ok(ExecutorReturn::Finished)
        }
    })
}

pub(crate) fn numbers(until: usize) -> String {
    let words: Vec<_> = (0..until).map(|number| number.to_string()).collect();
    words.join(" ") + " "
}

/// A client that applies each item as the protocol prescribes: pieces are appended or replace, an artifact replaces.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) text: String,
    pub(crate) pieces: usize,
    records: Vec<Version>,
    /// The items, as one word each.
    pub(crate) words: Vec<&'static str>,
}

impl Reader {
    fn take(&mut self, item: &LiveItem) {
        match item {
            LiveItem::Piece(piece) => {
                assert_eq!(&*piece.artifact_id, "answer");
                if !piece.append {
                    self.text.clear();
                }
                self.text.push_str(&piece.text);
                self.pieces += 1;
                self.words.push("piece");
            }
            LiveItem::Durable(SubscriptionItem::Snapshot(version, _)) => {
                self.records.push(*version);
                self.words.push("snapshot");
            }
            LiveItem::Durable(SubscriptionItem::Update(update)) => {
                self.records.push(update.version);
                self.words.push(match &*update.record {
                    TaskRecord::ArtifactUpdated { .. } => {
                        "final".clone_into(&mut self.text);
                        "artifact"
                    }
                    TaskRecord::TaskEnded { .. } => "ended",
                    _ => "record",
                });
            }
        }
    }

    /// Reads until the end, or until the text contains `until`.
    pub(crate) async fn read(&mut self, live: &mut LiveSubscription, until: Option<&str>) {
        while !until.is_some_and(|until| self.text.contains(until)) {
            let next = timeout(SOON, live.next()).await.expect("no hang");
            let Some(item) = next else { return };
            self.take(&item.expect("it can be read"));
        }
    }
}

fn live(accepted: AcceptedTask) -> LiveSubscription {
    accepted.subscription.with_live_text()
}

#[tokio::test(start_paused = true)]
async fn text_is_shown_while_it_arrives_at_most_twenty_times_a_second() {
    let gate = Arc::new(Semaphore::new(1));
    let executor = writer(100, Duration::from_millis(10), &gate);
    let manager = manager_of(&executor).await;
    let begin = Instant::now();
    let accepted = manager.execute(request("m1")).await.unwrap();
    let (mut reader, mut live) = (Reader::default(), live(accepted));
    reader.read(&mut live, Some(" 50 ")).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "it arrives early");
    assert!(reader.text.starts_with(&numbers(51)), "{}", reader.text);
    reader.read(&mut live, None).await;
    let shown = PIECES_PER_SECOND - 2..=PIECES_PER_SECOND + 1;
    assert!(shown.contains(&reader.pieces), "{}", reader.pieces);
    assert_eq!(reader.text, "final");
    let end = &reader.words[reader.words.len() - 2..];
    assert_eq!(end, ["artifact", "ended"], "no piece follows the artifact");
    assert!(
        reader.records.is_sorted_by(|a, b| a < b),
        "{:?}",
        reader.records
    );
}

/// Absent and stalled subscribers cost the writer nothing. They receive the text so far in one piece.
#[tokio::test(start_paused = true)]
async fn late_and_slow_subscribers_receive_one_piece() {
    let gate = Arc::new(Semaphore::new(0));
    let executor = writer(1_000, Duration::ZERO, &gate);
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let id = accepted.task_id.clone();
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(manager.subscribe(&id, None).await.unwrap().with_live_text());
    }
    let mut first = live(accepted);
    Reader::default().read(&mut first, Some("999 ")).await;
    for mut slow in stalled.into_iter().take(3) {
        let mut reader = Reader::default();
        reader.read(&mut slow, Some("999 ")).await;
        assert_eq!((reader.pieces, reader.text), (1, numbers(1_000)));
    }
    // A new subscription, and one that resumes after a record.
    let mut readers = Vec::new();
    for from in [None, Some(Version(3))] {
        let mut again = manager.subscribe(&id, from).await.unwrap().with_live_text();
        let mut reader = Reader::default();
        reader.read(&mut again, Some("999 ")).await;
        assert_eq!(
            (reader.pieces, &reader.text),
            (1, &numbers(1_000)),
            "{from:?}"
        );
        readers.push((reader, again));
    }
    gate.add_permits(1);
    for (mut reader, mut again) in readers {
        reader.read(&mut again, None).await;
        assert_eq!(reader.text, "final");
    }
}

#[tokio::test(start_paused = true)]
async fn new_text_replaces_the_text_of_a_repeated_call() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let write = |event| cx.events.write(event);
        write(TaskEvent::state(TaskState::Working))
            .await
            .expect("it runs");
        cx.live_text.push("before the first text");
        for text in ["first ", "second "] {
            cx.live_text.restart("answer", None);
            for _ in 0..3 {
                cx.live_text.push(text);
                sleep(Duration::from_millis(100)).await;
            }
        }
        write(TaskEvent::artifact(Artifact::text("answer", "final")))
            .await
            .expect("it runs");
        cx.live_text.push("after the artifact");
        sleep(Duration::from_millis(100)).await;
        write(TaskEvent::state(TaskState::Completed))
            .await
            .expect("it runs");
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let (mut reader, mut live) = (Reader::default(), live(accepted));
    for text in ["first first first ", "second second second "] {
        reader.read(&mut live, Some(text)).await;
        assert_eq!(reader.text, text);
    }
    reader.read(&mut live, None).await;
    assert_eq!(reader.text, "final");
    assert_eq!(reader.words.last(), Some(&"ended"));
    assert_eq!(reader.pieces, 6);
}

/// The text of a stopped execution ends with the stop, and does not look like an answer afterwards.
#[tokio::test(start_paused = true)]
async fn pieces_of_a_stopped_task_are_withdrawn() {
    let executor = writer(10, Duration::from_millis(100), &Arc::new(Semaphore::new(0)));
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let id = accepted.task_id.clone();
    let (mut reader, mut live) = (Reader::default(), live(accepted));
    reader.read(&mut live, Some("4 ")).await;
    let outcome = manager.cancel(&id, user()).await.unwrap();
    assert!(outcome.task.artifacts.is_empty());
    reader.read(&mut live, None).await;
    assert_eq!(reader.text, "");
    assert_eq!(reader.words[reader.words.len() - 2..], ["piece", "ended"]);
    assert_eq!(reader.pieces, 6, "five, and the withdrawal");
}

/// Only a subscriber that asks for live text receives it, and no log contains it.
#[tokio::test(start_paused = true)]
async fn live_text_is_never_a_record() {
    let gate = Arc::new(Semaphore::new(1));
    let executor = writer(50, Duration::from_millis(10), &gate);
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let words = rest(&mut accepted.subscription).await;
    let expected = [
        "snapshot submitted",
        "working",
        "artifact answer",
        "ended completed",
    ];
    assert_eq!(words, expected);
    let last = manager.last_event(&accepted.task_id).await.unwrap();
    let mut again = manager.execute(request("m2")).await.unwrap();
    gate.add_permits(1);
    ended(&manager, &mut again).await;
    assert_eq!(manager.last_event(&again.task_id).await.unwrap(), last);
}

/// A very long text ends early for display; the artifact has all of it.
#[tokio::test(start_paused = true)]
async fn live_text_is_bounded() {
    let executor = ScriptedExecutor::new(|cx| async move {
        let write = |event| cx.events.write(event);
        write(TaskEvent::state(TaskState::Working))
            .await
            .expect("it runs");
        cx.live_text.restart("answer", None);
        for _ in 0..1_000 {
            cx.live_text.push(&"x".repeat(1_000));
        }
        cx.live_text.push("y");
        cx.scope.stopped_at("waiting").await;
        Ok(ExecutorReturn::Finished)
    });
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let (mut reader, mut live) = (Reader::default(), live(accepted));
    while reader.pieces == 0 {
        reader.take(&live.next().await.unwrap().unwrap());
    }
    assert!(reader.text.len() <= 256 * 1_024 && reader.text.ends_with('x'));
    let more = timeout(Duration::from_secs(5), live.next()).await;
    assert!(more.is_err(), "{more:?}");
}
