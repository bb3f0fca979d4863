//! The registry of open sessions: reservations of ids, concurrent opens and closes, and clients that leave meanwhile.

use std::sync::Arc;

use allstop_core::{Extent, SessionId};
use allstop_log::{MemoryLog, SessionError};
use allstop_model::Reply;
use allstop_scope::StopRequest;
use allstop_session::{
    OpenError, ReserveResult, Session, SessionOptions, SessionReservation, StopTarget,
};
use allstop_testkit::{FaultyLog, LogFault};
use futures::FutureExt as _;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::yield_now;

use crate::support::{Fixture, agent, fixture, fixture_in, in_order, user};

async fn open_fixture() -> Fixture {
    let agent = agent(&in_order(vec![Reply::text("hello")])).build();
    fixture(agent, SessionOptions::default()).await
}

fn id() -> SessionId {
    "s2".into()
}

fn reserved<T>(result: ReserveResult<T>) -> SessionReservation {
    match result {
        ReserveResult::Reserved(reservation) => reservation,
        ReserveResult::Open(_) => panic!("the session is open"),
    }
}

fn used<T>(result: ReserveResult<T>) -> T {
    match result {
        ReserveResult::Open(used) => used,
        ReserveResult::Reserved(_) => panic!("the session is not open"),
    }
}

#[tokio::test(start_paused = true)]
async fn second_opener_uses_the_session_of_the_first() {
    let fixture = open_fixture().await;
    let registry = fixture.sessions.registry();
    let first = reserved(registry.reserve(&id(), Session::clone).await);
    let mut second = Box::pin(registry.reserve(&id(), Session::clone));
    assert!((&mut second).now_or_never().is_none());
    let opened = fixture.sessions.create(Some(id()), "/tmp").await.unwrap();
    // The registry already finds the session, but a request for its id waits for the release.
    assert!(registry.find(&id()).is_some());
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    let second = used(second.now_or_never().expect("released"));
    assert!(second.send("hi").unwrap().outcome().await.is_completed());
    opened.close().await;
    fixture.close().await;
}

/// Waiting requests proceed in their order, before any later request.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_use_the_session_in_their_order() {
    let fixture = open_fixture().await;
    let registry = fixture.sessions.registry();
    let order = Arc::<Mutex<Vec<u32>>>::default();
    let note = |number: u32| {
        let order = Arc::clone(&order);
        move |_: &Session| order.lock().push(number)
    };
    let first = reserved(registry.reserve(&id(), |_| ()).await);
    let mut waiting: Vec<_> = (0..4).map(|n| registry.reserve(&id(), note(n))).collect();
    // The client of this request leaves while the request waits.
    drop(waiting.remove(2));
    let opened = fixture.sessions.create(Some(id()), "/tmp").await.unwrap();
    drop(first);
    used(registry.reserve(&id(), note(9)).await);
    assert_eq!(*order.lock(), [0, 1, 3, 9]);
    join_all(waiting).await.into_iter().for_each(used);
    opened.close().await;
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn opening_that_fails_passes_the_reservation_on() {
    let fixture = open_fixture().await;
    let registry = fixture.sessions.registry();
    let first = reserved(registry.reserve(&id(), |_| ()).await);
    let gone: Vec<_> = (0..10_000)
        .map(|_| registry.reserve(&id(), |_| ()))
        .collect();
    let next = registry.reserve(&id(), |_| ());
    let last = registry.reserve(&id(), |_| ());
    drop(gone);
    drop(first);
    let next = reserved(next.now_or_never().expect("it is the first"));
    // The next client leaves while its future contains the reservation.
    let unread = registry.reserve(&id(), |_| ());
    drop(last);
    drop(next);
    drop(unread);
    drop(reserved(registry.reserve(&id(), |_| ()).await));
    assert!(registry.find(&id()).is_none());
    fixture.close().await;
}

/// A close reserves the id when it begins. A client that resumes the session therefore waits, and never gets a closing
/// session.
#[tokio::test(start_paused = true)]
async fn resume_waits_for_a_close_that_has_begun() {
    let fixture = open_fixture().await;
    let (registry, id) = (fixture.sessions.registry(), fixture.session.id().clone());
    assert!(registry.reserve_open(&id, |_| false).is_none());
    let (session, closing) = registry.reserve_open(&id, |_| true).expect("it is open");
    assert!(registry.reserve_open(&id, |_| true).is_none(), "twice");
    let mut resuming = Box::pin(registry.reserve(&id, |_| ()));
    session.close().await;
    assert!((&mut resuming).now_or_never().is_none());
    assert!(registry.find(&id).is_none(), "it has ended");
    drop(closing);
    let resuming = reserved(resuming.now_or_never().expect("released"));
    let resumed = fixture.sessions.resume(id).await.unwrap();
    drop(resuming);
    resumed.close().await;
}

/// A close without a reservation: from another terminal, or by the end of all work.
#[tokio::test(start_paused = true)]
async fn request_waits_for_the_end_of_a_session_that_is_stopped() {
    let fixture = open_fixture().await;
    let (registry, id) = (fixture.sessions.registry(), fixture.session.id().clone());
    fixture.session.send("hi").unwrap();
    let stop = fixture.session.stop(&StopTarget::Session, user());
    let resuming = registry.reserve(&id, |_| ());
    let resuming = reserved(resuming.await);
    assert!(stop.receipt().await.quiet());
    // The log of the session is no longer locked.
    let resumed = fixture.sessions.resume(id).await.unwrap();
    drop(resuming);
    assert_eq!(registry.list().len(), 1);
    resumed.close().await;
}

/// Simulates two processes of one program: the lock of the log decides, and the registry keeps the session that holds
/// the lock.
#[tokio::test(start_paused = true)]
async fn session_that_cannot_be_opened_leaves_the_open_one_alone() {
    let fixture = open_fixture().await;
    let (registry, id) = (fixture.sessions.registry(), fixture.session.id().clone());
    let again = fixture.sessions.resume(id.clone()).await;
    assert!(matches!(
        again,
        Err(OpenError::Session(SessionError::InUse { .. }))
    ));
    let found = registry.find(&id).expect("it is open");
    assert!(found.send("hi").unwrap().outcome().await.is_completed());
    drop(found);
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn subscriber_sees_each_open_session_once() {
    let fixture = open_fixture().await;
    let registry = fixture.sessions.registry();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    registry.subscribe(move |session| {
        assert_eq!(session.last_turn().0, 0, "before its first message");
        noted.lock().push(session.id().to_string());
    });
    let opened = fixture.sessions.create(Some(id()), "/tmp").await.unwrap();
    assert_eq!(*seen.lock(), ["s1", "s2"]);
    opened.close().await;
    fixture.close().await;
}

/// A stop of all work arrives while the store creates the session.
#[tokio::test(start_paused = true)]
async fn session_that_a_stop_refuses_leaves_the_registry() {
    let log = Arc::new(FaultyLog::new(Arc::new(MemoryLog::new())));
    let fixture = fixture_in(
        Arc::clone(&log) as _,
        agent(&in_order(Vec::new())).build(),
        SessionOptions::default(),
    )
    .await;
    let registry = fixture.sessions.registry();
    let part = Arc::new("part");
    let attached = Arc::clone(&part);
    registry.subscribe(move |session| {
        let held = (session.clone(), Arc::clone(&attached));
        session.set_part(Arc::new(held));
    });
    log.fail_at("session_opened", LogFault::Hold);
    let stop = async {
        log.reached().await;
        let all = StopRequest::new(Extent::Process, user());
        drop(fixture.root.stop(all).receipt().await);
        log.release().await;
    };
    let (refused, ()) = tokio::join!(fixture.sessions.create(Some(id()), "/tmp"), stop);
    assert!(matches!(refused, Err(OpenError::Stopped(_))), "{refused:?}");
    fixture.session.closed().await;
    assert!(registry.list().is_empty());
    assert_eq!(
        Arc::strong_count(&part),
        2,
        "the subscriber has the last one"
    );
}

/// A session without a handle leaves the registry once it sleeps, unless it is kept. An idle kept session makes room
/// for another session.
#[tokio::test(start_paused = true)]
async fn kept_session_stays_until_it_makes_room() {
    let fixture = open_fixture().await;
    let registry = fixture.sessions.registry().clone();
    let dropped = fixture.sessions.create(Some(id()), "/tmp").await.unwrap();
    registry.keep(&fixture.session);
    let kept = fixture.session.id().clone();
    while dropped.is_awake() || fixture.session.is_awake() {
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    }
    drop((dropped, fixture.session));
    yield_now().await;
    let open: Vec<_> = registry.list().iter().map(|s| s.id().clone()).collect();
    assert_eq!(open, std::slice::from_ref(&kept));
    let idle = |session: &Session| !session.is_busy();
    assert!(
        registry.reserve_idle(2, &id(), idle).is_none(),
        "there is room"
    );
    assert!(
        registry.reserve_idle(1, &kept, idle).is_none(),
        "it is needed"
    );
    assert!(
        registry.reserve_idle(1, &id(), |_| false).is_none(),
        "it is busy"
    );
    let (session, reservation) = registry.reserve_idle(1, &id(), idle).expect("no room");
    session.close().await;
    drop((session, reservation));
    assert!(registry.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn parts_are_one_of_a_type_and_end_with_the_session() {
    /// A part that holds its session.
    struct Clients(#[expect(dead_code, reason = "a circle")] Session, u32);

    let fixture = open_fixture().await;
    let session = &fixture.session;
    let first = Arc::new(Clients(session.clone(), 1));
    session.set_part(Arc::clone(&first));
    session.set_part(Arc::new(Clients(session.clone(), 2)));
    assert_eq!(Arc::strong_count(&first), 1, "replaced");
    session.set_part(Arc::new("another type"));
    assert_eq!(session.part::<Clients>().unwrap().1, 2);
    assert_eq!(session.take_part::<Clients>().unwrap().1, 2);
    assert!(session.part::<Clients>().is_none());
    session.set_part(Arc::clone(&first));
    session.close().await;
    assert_eq!(Arc::strong_count(&first), 1, "the end drops the parts");
    session.set_part(Arc::clone(&first));
    assert_eq!(Arc::strong_count(&first), 1, "none after the end");
    drop(first);
    fixture.close().await;
}
