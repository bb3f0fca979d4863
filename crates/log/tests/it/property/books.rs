//! Runs each operation on a log and on the reference log.

use std::collections::BTreeMap;
use std::task::Poll;

use allstop_log::{AppendId, LockAttempt, Log, StreamLock, StreamName, Version};
use futures::poll;

use super::ops::{Expected, Fate, Op, PREFIXES, STREAMS};
use crate::reference::{Append, Reference, is_same};

/// Known state of the log: the streams, the holder and the handle of each lock, and all appends so far.
#[derive(Default)]
pub(super) struct Books {
    pub(super) reference: Reference,
    locks: BTreeMap<StreamName, (usize, StreamLock)>,
    appends: Vec<Append>,
}

impl Books {
    pub(super) async fn step(&mut self, log: &dyn Log, which: usize, op: &Op) {
        match op {
            Op::Append {
                stream,
                expected,
                records,
                fate,
            } => {
                let stream = StreamName::new(STREAMS[*stream]);
                let append = Append {
                    expected: self.expected(&stream, *expected),
                    stream,
                    id: AppendId(self.appends.len() as u128 + 1),
                    records: records
                        .iter()
                        .map(|byte| vec![*byte; usize::from(*byte)].into())
                        .collect(),
                };
                self.appends.push(append.clone());
                self.append(log, &append, *fate).await;
            }
            Op::Repeat(at) => {
                if let Some(append) = self.appends.get(at % self.appends.len().max(1)).cloned() {
                    self.append(log, &append, Fate::Awaited).await;
                }
            }
            Op::Read {
                stream,
                from,
                limit,
                fate,
            } => {
                let (stream, from) = (StreamName::new(STREAMS[*stream]), Version(*from));
                let answer = settle(log.read(&stream, from, *limit), *fate).await;
                if let Some(answer) = answer {
                    assert_eq!(answer.unwrap(), self.reference.read(&stream, from, *limit));
                }
            }
            Op::Tail { stream, from } => {
                let (stream, from) = (StreamName::new(STREAMS[*stream]), Version(*from));
                let there = self.reference.read(&stream, from, 3);
                let mut tail = log.tail(&stream, from, 3);
                if there.is_empty() {
                    assert!(
                        poll!(&mut tail).is_pending(),
                        "there is no record to return"
                    );
                } else {
                    assert_eq!(tail.await.unwrap(), there);
                }
            }
            Op::List { prefix } => {
                let prefix = PREFIXES[*prefix];
                assert_eq!(log.list(prefix).await.unwrap(), self.reference.list(prefix));
            }
            Op::Lock { stream, fate } => self.lock(log, which, STREAMS[*stream], *fate).await,
            Op::Unlock { stream } => self.unlock(log, which, STREAMS[*stream]).await,
            Op::Delete { stream, fate } => self.delete(log, which, STREAMS[*stream], *fate).await,
            Op::DeleteUnchanged { streams, fate } => {
                let named = streams.iter().map(|(stream, expected)| {
                    let stream = StreamName::new(STREAMS[*stream]);
                    let expected = self.expected(&stream, *expected);
                    (stream, expected)
                });
                let named = named.collect();
                self.delete_unchanged(log, named, *fate).await;
            }
            Op::Reopen => {}
        }
    }

    fn expected(&self, stream: &StreamName, expected: Expected) -> Version {
        let actual = self.reference.version(stream).0;
        Version(match expected {
            Expected::Right => actual,
            Expected::TooLow(by) => actual.saturating_sub(by),
            Expected::TooHigh(by) => actual.saturating_add(by),
        })
    }

    async fn delete_unchanged(
        &mut self,
        log: &dyn Log,
        streams: Vec<(StreamName, Version)>,
        fate: Fate,
    ) {
        let before = self.reference.list("");
        let mut gone = Vec::new();
        let mut after = self.reference.clone();
        for (stream, expected) in &streams {
            if after.version(stream) == *expected {
                after.delete(stream);
                gone.push(stream.clone());
            }
        }
        if let Some(answer) = settle(log.delete_unchanged(streams), fate).await {
            assert_eq!(answer.unwrap(), gone);
        } else {
            barrier(log).await;
            if log.list("").await.unwrap() == before {
                return;
            }
        }
        self.reference = after;
        assert_eq!(
            log.list("").await.unwrap(),
            self.reference.list(""),
            "all or none"
        );
    }

    async fn append(&mut self, log: &dyn Log, append: &Append, fate: Fate) {
        let ask = || {
            let Append {
                stream,
                expected,
                id,
                records,
            } = append.clone();
            log.append(&stream, expected, id, records)
        };
        let before = self.reference.read(&append.stream, Version(1), usize::MAX);
        let answer = self.reference.append(append);
        let after = self.reference.read(&append.stream, Version(1), usize::MAX);
        if let Some(given) = settle(ask(), fate).await {
            assert!(
                is_same(&given, answer),
                "{given:?} where {answer:?} is right"
            );
            return;
        }
        let seen = log
            .read(&append.stream, Version(1), usize::MAX)
            .await
            .unwrap();
        assert!(
            seen == before || seen == after,
            "half an append was written: {seen:?}"
        );
        if before == after {
            // The append may still be in the queue. If the other handle deleted the stream first, the version that this
            // append expects would become correct. Therefore wait until the append is done.
            barrier(log).await;
        } else {
            // The append is repeated with its id. This settles the append, whether or not it was written before. An
            // append without records has no stored id.
            let given = ask().await;
            assert!(
                is_same(&given, answer),
                "{given:?} where {answer:?} is right"
            );
        }
        let seen = log
            .read(&append.stream, Version(1), usize::MAX)
            .await
            .unwrap();
        assert_eq!(seen, after);
    }

    async fn lock(&mut self, log: &dyn Log, which: usize, stream: &str, fate: Fate) {
        let name = StreamName::new(stream);
        let held = self.locks.contains_key(&name);
        match settle(log.try_lock(&name), fate).await {
            Some(Ok(LockAttempt::Locked(lock))) => {
                assert!(!held, "a lock has one holder");
                self.locks.insert(name.clone(), (which, lock));
            }
            Some(Ok(LockAttempt::HeldBy(owner))) => {
                assert!(held, "the lock is free");
                assert_eq!(owner.unwrap().pid, std::process::id());
            }
            Some(Err(error)) => panic!("a healthy store does not fail: {error}"),
            // A drop releases the lock in order with later requests to the same handle, so the barrier waits for the
            // release.
            None => barrier(log).await,
        }
        let owner = log.lock_owner(&name).await.unwrap();
        assert_eq!(owner.is_some(), self.locks.contains_key(&name));
    }

    /// Releases a lock with the handle that took it. Ignores the locks of other handles.
    async fn unlock(&mut self, log: &dyn Log, which: usize, stream: &str) {
        let name = StreamName::new(stream);
        if let Some((by, lock)) = self.locks.remove(&name) {
            if by == which {
                drop(lock);
                assert!(log.lock_owner(&name).await.unwrap().is_none());
            } else {
                self.locks.insert(name, (by, lock));
            }
        }
    }

    async fn delete(&mut self, log: &dyn Log, which: usize, stream: &str, fate: Fate) {
        let name = StreamName::new(stream);
        let lock = match self.locks.remove(&name) {
            Some((by, lock)) if by == which => lock,
            Some(held) => {
                self.locks.insert(name, held);
                return;
            }
            None => match log.try_lock(&name).await.unwrap() {
                LockAttempt::Locked(lock) => lock,
                LockAttempt::HeldBy(owner) => panic!("the lock is free, not held by {owner:?}"),
            },
        };
        if let Some(answer) = settle(log.delete(lock), fate).await {
            answer.unwrap();
            self.reference.delete(&name);
        } else {
            barrier(log).await;
            let seen = log.read(&name, Version(1), usize::MAX).await.unwrap();
            if seen.is_empty() {
                self.reference.delete(&name);
            }
            assert_eq!(
                seen,
                self.reference.read(&name, Version(1), usize::MAX),
                "whole or not at all"
            );
        }
        assert!(
            log.lock_owner(&name).await.unwrap().is_none(),
            "the lock is released"
        );
    }
}

/// Result of the operation; `None` if its future was dropped.
async fn settle<T>(mut asked: impl Future<Output = T> + Unpin, fate: Fate) -> Option<T> {
    match fate {
        Fate::Awaited => Some(asked.await),
        Fate::NeverPolled => None,
        Fate::DroppedAfterAPoll => match poll!(&mut asked) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        },
    }
}

/// Returns after the store has finished all earlier requests to this handle, and the work that follows from these
/// requests.
async fn barrier(log: &dyn Log) {
    let nothing = log.append(
        &StreamName::new("barrier"),
        Version(u64::MAX),
        AppendId(0),
        Vec::new(),
    );
    assert!(nothing.await.is_err());
    for _ in 0..2 {
        log.list("u").await.unwrap();
    }
}
