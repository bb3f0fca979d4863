//! The rules for places of connections.

use std::time::Duration;

use allstop_host::{Place, PlaceLimits, Places, TooManyUnsentBytes};
use futures::FutureExt as _;
use tokio::time::Instant;

fn limits() -> PlaceLimits {
    PlaceLimits::of_connections(4)
        .connection_unsent_bytes_max(100)
        .unsent_bytes_max(250)
        .stall_time_max(Duration::from_secs(30))
        .bytes_per_s_min(10)
}

fn is_lost(place: &Place) -> bool {
    place.lost().now_or_never().is_some()
}

#[tokio::test]
async fn connection_without_an_admitted_request_loses_its_place_first() {
    let places = Places::new(limits());
    let old = places.take().await;
    old.place().prove();
    let unproven = places.take().await;
    let others = [places.take().await, places.take().await];
    let mut taking = Box::pin(places.take());
    assert!(taking.as_mut().now_or_never().is_none());
    let lost = [&old, &unproven, &others[0], &others[1]].map(|guard| is_lost(guard.place()));
    assert_eq!(lost, [false, true, false, false]);
    drop(unproven);
    let _taken = taking.await;
}

#[tokio::test]
async fn place_of_a_connection_that_becomes_idle_is_given_away() {
    let places = Places::new(PlaceLimits::of_connections(1));
    let busy = places.take().await;
    busy.place().prove();
    busy.place().set_busy(true);
    let mut taking = Box::pin(places.take());
    assert!(taking.as_mut().now_or_never().is_none());
    assert!(!is_lost(busy.place()));
    busy.place().set_busy(false);
    assert!(taking.as_mut().now_or_never().is_none());
    assert!(is_lost(busy.place()));
    drop(busy);
    let _taken = taking.await;
}

#[tokio::test]
async fn number_of_connections_without_an_admitted_request_is_limited() {
    let places = Places::new(PlaceLimits::of_connections(100).unproven_max(2));
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(places.take().await);
    }
    let lost: Vec<bool> = guards.iter().map(|guard| is_lost(guard.place())).collect();
    assert_eq!(lost, [true, true, true, false, false]);
    guards[3].place().prove();
    guards.push(places.take().await);
    assert!(!guards.iter().skip(3).any(|guard| is_lost(guard.place())));
}

#[tokio::test(start_paused = true)]
async fn clients_that_wait_longest_lose_their_places_when_the_memory_is_full() {
    let places = Places::new(limits());
    let guards = [
        places.take().await,
        places.take().await,
        places.take().await,
    ];
    let place = |number: usize| guards[number].place();
    let reader = place(0).hold(100).expect("there is room");
    let _stalled = place(1).hold(100).expect("there is room");
    drop(reader);
    tokio::time::advance(Duration::from_secs(1)).await;
    let _reader = place(0).hold(100).expect("there is room");
    assert!(!is_lost(place(1)));
    let _third = place(2).hold(100).expect("there is room");
    assert_eq!(
        [0, 1, 2].map(|number| is_lost(place(number))),
        [false, true, false]
    );
}

#[tokio::test]
async fn unsent_bytes_of_a_connection_are_limited() {
    let places = Places::new(limits());
    let guard = places.take().await;
    let first = guard
        .place()
        .hold(200)
        .expect("the first may have any size");
    let more = guard.place().hold(1).map(drop);
    assert_eq!(more, Err(TooManyUnsentBytes));
    drop(first);
    assert!(guard.place().hold(100).is_ok());
}

#[tokio::test(start_paused = true)]
async fn client_has_time_for_a_part_according_to_its_size() {
    let places = Places::new(limits());
    let guard = places.take().await;
    let start = Instant::now();
    // The wait begins before there is a part.
    let stalled = async {
        guard.place().stalled().await;
        start.elapsed()
    };
    let client = async {
        let part = guard.place().hold(50).expect("there is room");
        tokio::time::sleep(Duration::from_secs(34)).await;
        drop(part);
        guard.place().hold(50).expect("there is room")
    };
    let (elapsed, _part) = tokio::join!(stalled, client);
    assert_eq!(elapsed, Duration::from_secs(34 + 30 + 5));
}
