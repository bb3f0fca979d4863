//! Servers that fail, and servers that are not suitable.

use std::time::Duration;

use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogErrorKind, RecordBytes, StreamName, Version,
};
use allstop_nats::{ConnectError, NatsLog, NatsOptions};
use allstop_testkit::nats_server::NatsServer;
use allstop_testkit::own_loopback::free_addresses;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{on_one_server, on_three_servers, open, scope};

const APPENDS: u64 = 400;
/// Maximum number of attempts of one append. Each attempt takes at most the time limit of the options.
const TRIES_MAX: usize = 10;

fn text(number: u64) -> RecordBytes {
    number.to_string().into()
}

/// Appends a record, and repeats the append until the log has confirmed it.
async fn append_surely(log: &dyn Log, stream: &StreamName, number: u64) {
    for _ in 0..TRIES_MAX {
        let id = AppendId(u128::from(number));
        let answer = log.append(stream, Version(number), id, vec![text(number)]);
        match answer.await {
            Ok(version) => return assert_eq!(version, Version(number + 1)),
            Err(AppendError::Conflict { actual }) => panic!("nobody else writes: {actual}"),
            Err(AppendError::Indeterminate | AppendError::Log(_)) => {}
        }
    }
    panic!("append {number} is not confirmed");
}

async fn assert_complete(log: &dyn Log, stream: &StreamName) {
    let found = log.read(stream, Version(1), usize::MAX).await;
    let found = found.expect("the log can be read");
    let expected = (0..APPENDS).map(|number| (Version(number + 1), text(number)));
    assert!(found.into_iter().eq(expected), "each record once, in order");
}

#[tokio::test]
async fn appends_go_on_while_servers_of_a_group_are_killed() {
    let (log, mut kept) = on_three_servers().await;
    let stream = StreamName::new("s");
    for number in 0..APPENDS {
        // Each server is killed once, so the leader is killed at least once. Two servers are never killed at the same
        // time.
        let killed = usize::try_from(number / 100).unwrap();
        match (number % 100, kept.servers.servers.get_mut(killed)) {
            (50, Some(server)) => server.kill(),
            (90, Some(server)) => server.restart(),
            _ => {}
        }
        append_surely(&log, &stream, number).await;
    }
    assert_complete(&log, &stream).await;
}

#[tokio::test]
async fn killed_server_keeps_what_it_has_confirmed() {
    let (log, mut kept) = on_one_server().await;
    let stream = StreamName::new("s");
    for number in 0..APPENDS {
        if number % 100 == 50 {
            kept.servers.restart();
        }
        append_surely(&log, &stream, number).await;
    }
    assert_complete(&log, &stream).await;
}

#[tokio::test]
async fn server_that_stays_away_is_an_error_in_time() {
    let folder = TempDir::new().unwrap();
    let mut server = NatsServer::start(folder.path());
    let mut options = NatsOptions::new(server.url());
    options.answer_max = Duration::from_millis(300);
    let log = NatsLog::open(options, &scope()).await.unwrap();
    server.kill();
    let stream = StreamName::new("s");
    let read = log.read(&stream, Version(1), 1).await.unwrap_err();
    assert_eq!(read.kind(), LogErrorKind::Unreachable, "{read}");
    // The NATS client may have accepted the append, and may send it after the server is available again.
    let append = log.append(&stream, Version(0), AppendId(0), vec![text(0)]);
    match append.await.unwrap_err() {
        AppendError::Indeterminate => {}
        AppendError::Log(error) => assert_eq!(error.kind(), LogErrorKind::Unreachable),
        AppendError::Conflict { .. } => panic!("nobody answers"),
    }
    server.restart();
    append_surely(&log, &stream, 0).await;
    let found = log.read(&stream, Version(1), 5).await.unwrap();
    assert_eq!(found, [(Version(1), text(0))]);
}

#[tokio::test]
async fn lists_wait_for_a_server_that_comes_back() {
    let (log, mut kept) = on_one_server().await;
    let stream = StreamName::new("s");
    append_surely(&log, &stream, 0).await;
    let link = log.link().await.unwrap();
    link.put("k/1", b"v".to_vec(), None, None).await.unwrap();
    kept.servers.kill();
    let lists = async { tokio::join!(log.list(""), link.entries("k/")) };
    let mut lists = std::pin::pin!(lists);
    // At this time, the lists cannot reach a server.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut lists).await;
    assert!(early.is_err(), "{early:?}");
    kept.servers.restart();
    let (streams, entries) = lists.await;
    assert_eq!(streams.unwrap(), [(stream, Version(1))]);
    assert_eq!(entries.unwrap().len(), 1);
}

#[tokio::test]
async fn other_connections_see_what_was_appended() {
    let (log, kept) = on_one_server().await;
    let other = open(kept.servers.url(), 1).await;
    let stream = StreamName::new("s");
    for number in 0..APPENDS {
        // Each log has cached positions, which the appends of the other log have made outdated.
        let (writer, reader) = if number % 2 == 0 {
            (&log, &other)
        } else {
            (&other, &log)
        };
        append_surely(writer, &stream, number).await;
        let found = reader.read(&stream, Version(number + 1), 5).await.unwrap();
        assert_eq!(found, [(Version(number + 1), text(number))]);
        // Repeats the append through the other connection.
        append_surely(reader, &stream, number).await;
    }
    assert_complete(&log, &stream).await;
    for number in [1, 2, 57, 199, 200, 201, 399, 400] {
        let fresh = open(kept.servers.url(), 1).await;
        let found = fresh.read(&stream, Version(number), 1).await.unwrap();
        assert_eq!(found, [(Version(number), text(number - 1))], "by a search");
    }
}

/// Long records are stored in pieces. If a stream is deleted and created again, the deletion must not remove pieces of
/// the new stream.
#[tokio::test]
async fn streams_of_one_name_keep_their_long_records_apart() {
    let (log, kept) = on_one_server().await;
    let beside = open(kept.servers.url(), 1).await;
    let stream = StreamName::new("s");
    let filled = |fill: u8| RecordBytes::from(vec![fill; 2_500_000]);
    for round in 1..=3 {
        // The two logs take turns. Therefore each of them has cached positions of a stream that the other log has
        // deleted.
        let (first, second) = if round % 2 == 0 {
            (&log, &beside)
        } else {
            (&beside, &log)
        };
        for number in 0..2 {
            let id = AppendId(u128::from(round) << 8 | u128::from(number));
            let record = vec![filled(round)];
            let version = first.append(&stream, Version(number), id, record).await;
            assert_eq!(version.unwrap(), Version(number + 1));
        }
        let found = second.read(&stream, Version(1), 5).await.unwrap();
        assert!(found == [(Version(1), filled(round)), (Version(2), filled(round))]);
        let LockAttempt::Locked(lock) = second.try_lock(&stream).await.unwrap() else {
            panic!("nobody has the lock");
        };
        second.delete(lock).await.unwrap();
        assert_eq!(first.read(&stream, Version(1), 5).await.unwrap(), []);
        assert_eq!(first.list("").await.unwrap(), []);
    }
}

#[tokio::test]
async fn server_that_does_not_exist_is_named() {
    let [address] = free_addresses();
    let url = format!("nats://{address}");
    let opened = NatsLog::open(NatsOptions::new(&*url), &scope()).await;
    let error = opened.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}

#[tokio::test]
async fn port_that_is_no_nats_server_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let options = NatsOptions::new(format!("nats://joe:secret@{address}"));
    let error = NatsLog::open(options, &scope()).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoAnswer { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains(&format!("nats://{address}:")) && !said.contains("secret"),
        "{said}"
    );
}

#[tokio::test]
async fn more_copies_than_servers_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(folder.path());
    let mut options = NatsOptions::new(server.url());
    options.replicas = 3;
    let error = NatsLog::open(options, &scope()).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Replicas { replicas: 3, .. }),
        "{error}"
    );
}

/// Greets one client like a server of this version, and answers the client's pings.
async fn greet(client: TcpStream, version: &str, jetstream: bool) {
    let info = format!(
        r#"INFO {{"server_id":"x","server_name":"x","version":"{version}","proto":1,"host":"127.0.0.1","port":4222,"headers":true,"max_payload":1048576,"jetstream":{jetstream}}}"#
    );
    let (read, mut write) = client.into_split();
    let greeting = format!("{info}\r\n");
    let sent = write.write_all(greeting.as_bytes()).await;
    sent.expect("the client is there");
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.starts_with("PING") {
            let sent = write.write_all(b"PONG\r\n").await;
            sent.expect("the client is there");
        }
    }
}

#[tokio::test]
async fn unsuitable_servers_are_refused_with_the_reason() {
    for (version, jetstream, expected) in [
        (
            "2.9.10",
            true,
            "the NATS server has version 2.9.10; the required version is 2.11 or later",
        ),
        ("2.15.1", false, "JetStream is off at the NATS server"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let server = async {
            let (client, _) = listener.accept().await.unwrap();
            greet(client, version, jetstream).await;
        };
        let scope = scope();
        let opened = tokio::select! {
            opened = NatsLog::open(NatsOptions::new(url), &scope) => opened,
            () = server => panic!("the client went away"),
        };
        let error = opened.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
