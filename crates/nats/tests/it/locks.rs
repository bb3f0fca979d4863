//! Locks that several processes want to take.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::record::{SessionRecord, TurnOrigin};
use allstop_core::{SessionId, Timestamp, TurnNumber};
use allstop_log::{LockAttempt, Log, SessionWriter, StreamLock, StreamName};
use allstop_nats::{NatsLog, NatsOptions};
use allstop_testkit::nats_server::NatsServer;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, interval};

use crate::support::{on_one_server, open, scope};

async fn try_lock(log: &NatsLog) -> Option<StreamLock> {
    let lock = log.try_lock(&StreamName::new("s")).await;
    match lock.expect("the servers answer") {
        LockAttempt::Locked(lock) => Some(lock),
        LockAttempt::HeldBy(_) => None,
    }
}

/// Tries to take the lock until it is free.
async fn lock_within(log: &NatsLog, max: Duration) -> Option<StreamLock> {
    let began = Instant::now();
    let mut ticks = interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let lock = try_lock(log).await;
        if lock.is_some() || began.elapsed() > max {
            return lock;
        }
    }
}

#[tokio::test]
async fn lock_is_for_one_process_and_goes_back() {
    let (one, kept) = on_one_server().await;
    let other = open(kept.servers.url(), 1).await;
    let lock = try_lock(&one).await.unwrap();
    assert!(try_lock(&other).await.is_none());
    assert!(try_lock(&one).await.is_none(), "it is held here");
    drop(lock);
    // Another process sees the release with a short delay.
    let lock = lock_within(&other, Duration::from_secs(5)).await.unwrap();
    assert!(try_lock(&one).await.is_none());
    // A process that closes the log releases its locks.
    other.close().await;
    assert!(try_lock(&one).await.is_some());
    drop(lock);
}

#[tokio::test]
async fn stopped_scope_gives_locks_back() {
    let (one, kept) = on_one_server().await;
    let scope = scope();
    let other = NatsLog::open(NatsOptions::new(kept.servers.url()), &scope).await;
    let lock = try_lock(&other.unwrap()).await.unwrap();
    let stop = allstop_scope::StopRequest::new(
        allstop_core::Extent::Process,
        allstop_core::Cause::new(allstop_core::CauseKind::Shutdown),
    );
    let receipt = scope.stop(stop).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert!(try_lock(&one).await.is_some());
    drop(lock);
}

/// Regression test. A process renews a message about its presence. The first such message failed immediately if the
/// stream accepted no message at that time, for example because the stream had no leader.
#[tokio::test]
async fn lock_waits_for_the_stream_of_locks() {
    let (log, kept) = on_one_server().await;
    let client = async_nats::connect(kept.servers.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let name = "allstop-locks";
    let locks = context.get_stream(name).await.unwrap();
    let config = locks.cached_info().config.clone();
    context.delete_stream(name).await.unwrap();
    let comes_back = async {
        // The stream is not available during this time.
        tokio::time::sleep(Duration::from_millis(300)).await;
        context.create_stream(config).await.unwrap();
    };
    let (lock, ()) = tokio::join!(try_lock(&log), comes_back);
    assert!(lock.is_some());
}

#[tokio::test]
async fn release_without_a_server_is_made_up_for() {
    let folder = TempDir::new().unwrap();
    let mut server = NatsServer::start(folder.path());
    let log = open_with_short_ttl(&server.url()).await;
    let lock = try_lock(&log).await.unwrap();
    server.kill();
    // Requests fail within their time limit, even while the renewals also fail.
    let began = Instant::now();
    log.try_lock(&StreamName::new("t")).await.unwrap_err();
    log.lock_owner(&StreamName::new("s")).await.unwrap_err();
    drop(lock);
    log.try_lock(&StreamName::new("s")).await.unwrap_err();
    assert!(began.elapsed() < TTL * 3, "{:?}", began.elapsed());
    server.restart();
    let other = open(server.url(), 1).await;
    let lock = lock_within(&other, TTL * 5).await;
    assert!(lock.is_some(), "it was given back");
}

const TTL: Duration = Duration::from_secs(2);

async fn open_with_short_ttl(url: &str) -> NatsLog {
    let mut options = NatsOptions::new(url);
    options.lock_ttl = TTL;
    let log = NatsLog::open(options, &scope()).await;
    log.expect("a server")
}

#[test]
fn lock_of_a_process_that_was_killed_passes_on() {
    let folder = TempDir::new().unwrap();
    let server = NatsServer::start(folder.path());
    let (survivor, victim) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let other = survivor.block_on(open_with_short_ttl(&server.url()));
    let lock = victim.block_on(async {
        let log = open_with_short_ttl(&server.url()).await;
        try_lock(&log).await.unwrap()
    });
    // The lock is renewed, so it is held for longer than its time to live.
    assert!(survivor.block_on(lock_within(&other, TTL * 2)).is_none());
    // The runtime ends without releasing the lock, as if the process had been killed.
    victim.shutdown_background();
    let passed_on = survivor.block_on(lock_within(&other, TTL * 3));
    assert!(passed_on.is_some(), "it passes on when it expires");
    drop(lock);
}

/// A worker is suspended until its presence (the message that it renews) has expired. The record of its open turn then
/// still names a living process.
#[tokio::test]
async fn living_process_without_presence_holds_no_session() {
    let (log, _kept) = on_one_server().await;
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let owner = allstop_process::identity_of(sleeper.id());
    assert!(owner.is_some());
    let (log, at): (Arc<dyn Log>, _) = (Arc::new(log), Timestamp::from_unix_ms(0));
    let id = SessionId::new("s");
    let created = SessionWriter::create(Arc::clone(&log), id.clone(), at, "/tmp", None).await;
    let mut session = created.unwrap();
    let started = SessionRecord::TurnStarted {
        turn: TurnNumber(1),
        at,
        input: "do it".into(),
        images: Vec::new(),
        owner,
        message: None,
        origin: TurnOrigin::User,
        reported: Vec::new(),
    };
    session.append(vec![started]).await.unwrap();
    drop(session);
    let resumed = SessionWriter::resume(log, id, at).await;
    let is_ended = resumed.map(|session| session.state().open_turn().is_none());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(is_ended.unwrap(), "the turn of the lost owner is ended");
}
