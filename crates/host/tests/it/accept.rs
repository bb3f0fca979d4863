//! Tests of the accept loop and of work of servers, with real sockets.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent};
use allstop_host::{Listener, Place, PlaceLimits, Places, accept_connections, finish_work};
use allstop_scope::{RootOptions, Scope, StopRequest, WorkCx};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

fn scope() -> Scope {
    Scope::root("server", RootOptions::single_runtime())
}

fn stop() -> StopRequest {
    StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown))
}

fn places(connections_max: usize) -> Places {
    Places::new(PlaceLimits::of_connections(connections_max))
}

/// Sends a greeting, then sends back one byte.
async fn greet(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send,
    cx: WorkCx,
    place: Place,
) {
    place.prove();
    place.set_busy(true);
    let mut byte = [0];
    let talk = async {
        stream.write_all(b"h").await?;
        stream.read_exact(&mut byte).await?;
        stream.write_all(&byte).await
    };
    tokio::select! {
        _stopped = cx.stopped_at("greeting") => {}
        _ended = talk => {}
    }
}

async fn read_byte(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<u8> {
    let read = timeout(LONG, stream.read_u8()).await.expect("in time");
    read.ok()
}

#[tokio::test]
async fn connection_beyond_the_limit_waits_for_busy_ones_and_a_stop_ends_all() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let scope = scope();
    let accepting = accept_connections(listener, scope.clone(), places(1), greet);
    let clients = async {
        let mut first = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_byte(&mut first).await, Some(b'h'));
        let mut second = TcpStream::connect(address).await.unwrap();
        let early = timeout(Duration::from_millis(200), second.read_u8()).await;
        assert!(early.is_err(), "{early:?}");
        first.write_all(b"a").await.unwrap();
        assert_eq!(read_byte(&mut first).await, Some(b'a'));
        assert_eq!(read_byte(&mut second).await, Some(b'h'), "there is a place");
        let receipt = scope.stop(stop()).receipt().await;
        assert!(receipt.quiet(), "{receipt:?}");
        let names = receipt.items().iter().map(|item| item.name.to_string());
        let names: Vec<String> = names.collect();
        let peer = second.local_addr().unwrap();
        assert!(
            names.contains(&format!("connection of {peer}")),
            "{names:?}"
        );
        assert_eq!(read_byte(&mut second).await, None);
    };
    let ((), ()) = timeout(LONG, async { tokio::join!(accepting, clients) })
        .await
        .expect("the stop ends the loop");
    assert!(TcpStream::connect(address).await.is_err(), "it is closed");
}

#[tokio::test]
async fn new_connection_gets_the_place_of_an_idle_one() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let scope = scope();
    let idle = |mut stream: TcpStream, _cx, place: Place| async move {
        place.prove();
        let _left = stream.write_all(b"h").await;
        std::future::pending::<()>().await;
    };
    let accepting = accept_connections(listener, scope.clone(), places(2), idle);
    let clients = async {
        let mut streams = Vec::new();
        for _ in 0..10 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            assert_eq!(read_byte(&mut stream).await, Some(b'h'));
            streams.push(stream);
        }
        for old in &mut streams[..8] {
            assert_eq!(read_byte(old).await, None);
        }
        drop(scope.stop(stop()).receipt().await);
    };
    let both = async { tokio::join!(accepting, clients) };
    timeout(LONG, both).await.expect("it ends");
}

#[tokio::test]
async fn unix_sockets_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let scope = scope();
    let accepting = accept_connections(listener, scope.clone(), places(8), greet);
    let client = async {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        assert_eq!(read_byte(&mut stream).await, Some(b'h'));
        assert!(scope.stop(stop()).receipt().await.quiet());
    };
    let both = async { tokio::join!(accepting, client) };
    timeout(LONG, both).await.expect("it ends");
}

/// A listener with prepared results.
struct ScriptedListener(Mutex<VecDeque<io::Result<u32>>>);

impl Listener for ScriptedListener {
    type Stream = u32;

    async fn accept(&self) -> io::Result<(u32, String)> {
        match self.0.lock().await.pop_front() {
            Some(result) => result.map(|number| (number, format!("connection {number}"))),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_accept_is_tried_again_after_a_pause() {
    let too_many = || Err(io::Error::other("too many open files"));
    let results = VecDeque::from([too_many(), too_many(), Ok(7)]);
    let (scope, served) = (scope(), Arc::new(Notify::new()));
    let (began, told) = (tokio::time::Instant::now(), Arc::clone(&served));
    let listener = ScriptedListener(Mutex::new(results));
    let accepting = accept_connections(
        listener,
        scope.clone(),
        places(1),
        move |number, _cx, _place| {
            let told = Arc::clone(&told);
            async move {
                assert_eq!(number, 7);
                told.notify_one();
            }
        },
    );
    tokio::select! {
        () = accepting => panic!("it goes on"),
        () = served.notified() => {}
    }
    assert_eq!(began.elapsed(), Duration::from_millis(100));
}

#[tokio::test]
async fn work_ends_although_its_caller_leaves() {
    let scope = scope();
    let (go_on, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (gate, end) = (Arc::clone(&go_on), Arc::clone(&done));
    let work = async move {
        gate.notified().await;
        end.notify_one();
    };
    drop(finish_work(&scope, "opening".to_owned(), work).expect("it runs"));
    go_on.notify_one();
    timeout(LONG, done.notified())
        .await
        .expect("it was finished");
    drop(scope.stop(stop()).receipt().await);
    assert!(finish_work(&scope, "late".to_owned(), async {}).is_none());
}
