//! The socket through which other terminals stop sessions: file permissions, invalid data, and peers that close the
//! connection.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::process::Uid;
use serde_json::json;

use crate::remote::{busy_chat, command, exchange, lines, sockets, stop};
use crate::support::Place;
use crate::support::chat_user::ChatUser;
use crate::support::terminal::Terminal;

/// The test writes to the socket directly. The socket tolerates invalid data, and answers a thousand requests that are
/// sent at once.
#[test]
fn socket_stands_garbage_and_many_requests() {
    const REQUESTS: usize = 1_000;

    let place = Place::new();
    let user = busy_chat(&place);
    let [socket] = sockets(&place).try_into().expect("one socket");
    let mode = std::fs::metadata(&socket)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        stream
    };
    for garbage in [
        vec![0xff; 100_000],
        b"Content-Length: 10000000\r\n\r\n".to_vec(),
        b"Content-Length: -1\r\n\r\n".to_vec(),
        b"Content-Length: 5\r\n\r\n{}{}{".to_vec(),
    ] {
        let mut stream = connect();
        // The process may close the connection before the last byte is written.
        drop(stream.write_all(&garbage));
        drop(stream.shutdown(Shutdown::Write));
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        assert!(answer.is_empty() || answer.contains("error"), "{answer}");
    }
    let mut stream = connect();
    let mut requests = Vec::new();
    for id in 0..REQUESTS {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "allstop.list", "params": {} });
        let body = body.to_string();
        requests.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes());
    }
    // All requests fit into the socket buffer, so this write does not block.
    stream.write_all(&requests).expect("it is written");
    let mut answers = String::new();
    let mut chunk = vec![0; 65_536];
    while answers.matches("\"jsonrpc\":\"2.0\"").count() < REQUESTS {
        let len = stream.read(&mut chunk).expect("an answer");
        assert!(len > 0, "closed after {} bytes", answers.len());
        answers.push_str(std::str::from_utf8(&chunk[..len]).expect("text"));
    }
    assert!(!answers.contains("\"error\""));
    for unknown in ["allstop.stop", "no.such.method"] {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": unknown, "params": {} }).to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(frame.as_bytes()).expect("it is written");
        let len = stream.read(&mut chunk).expect("an answer");
        assert!(String::from_utf8_lossy(&chunk[..len]).contains("error"));
    }
    // A stop continues even after the client that requested it has disconnected.
    let id =
        lines(&command(&place, "ps --json").ok().stdout)[0]["sessions"][0]["session_id"].clone();
    let params = json!({ "session_id": id, "extent": "turn_and_background", "now": false, "preview": false, "by": "a test" });
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "allstop.stop", "params": params })
        .to_string();
    let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(frame.as_bytes()).expect("it is written");
    drop(stream);
    user.waits_for("by a test")
        .waits_for("verified.")
        .presses("\x04");
    drop(user.leaves_chat());
    place.assert_nothing_runs();
}

/// More idle connections than the socket accepts do not delay a stop.
#[test]
fn idle_connections_do_not_block_a_stop() {
    const CONNECTIONS: usize = 300;

    let place = Place::new();
    let user = busy_chat(&place);
    let [socket] = sockets(&place).try_into().expect("one socket");
    let connect = |_| UnixStream::connect(&socket).expect("it listens");
    let idle: Vec<UnixStream> = (0..CONNECTIONS).map(connect).collect();
    let listed = command(&place, "ps").ok().stdout;
    assert!(listed.contains("chat"), "{listed}");
    drop(stop(&place, "--all").ok());
    drop(idle);
    user.waits_for("stopped by")
        .waits_for("verified.")
        .presses("\x04");
    drop(user.leaves_chat());
    place.assert_nothing_runs();
}

/// The chat cannot create its socket. The screen shows this problem, and the chat works otherwise.
#[test]
fn chat_without_a_socket_warns_about_remote_stops() {
    let place = Place::new();
    let chat = place.allstop().args("chat --model");
    let chat = chat.arg(place.script("replies: [{text: Hello there.}]"));
    let chat = chat.env("XDG_RUNTIME_DIR", place.path("nowhere"));
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.waits_for("this process cannot be stopped from another terminal: the folder");
    user.types("hello")
        .waits_for("Hello there.")
        .presses("\x04");
    drop(user.leaves_chat());
}

/// The process closes the connection without an answer. This does not prove that the process has ended.
#[test]
fn process_that_hangs_up_is_not_called_ended() {
    let place = Place::new();
    let folder = place.path("run/allstop");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("a mode");
    let socket = folder.join(format!("{}.sock", std::process::id()));
    let listener = UnixListener::bind(&socket).expect("a socket");
    let asked = std::thread::scope(|scope| {
        // The command requests the list of sessions twice.
        scope.spawn(|| {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a connection");
                let _len = stream.read(&mut [0; 1_024]).expect("a request");
            }
        });
        command(&place, "ps")
    });
    assert!(
        asked
            .stdout
            .contains("closed the connection without an answer"),
        "{asked:?}"
    );
    assert!(socket.exists(), "the socket of a living process stays");
    drop(listener);
    let asked = command(&place, "ps").ok();
    assert!(
        asked.stdout.contains("no session is open") && !socket.exists(),
        "{asked:?}"
    );
}

#[test]
fn socket_folder_that_others_can_use_is_refused() {
    let place = Place::new();
    let folder = place.path("run/allstop");
    std::fs::create_dir(&folder).expect("a folder");
    let mode = |mode: u32| {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).expect("a mode");
    };
    let refused = || {
        let ended = command(&place, "ps");
        let is_named = ended
            .stderr
            .contains("is not a folder that only you can use");
        assert!(ended.code == 1 && is_named, "{ended:?}");
    };
    for open in [0o750, 0o701] {
        mode(open);
        refused();
    }
    mode(0o700);
    command(&place, "ps").ok();
    // This part of the test needs root, because only root can change the owner of a folder.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&folder, Some(65_534), None).expect("an owner");
        refused();
    }
}

#[test]
fn other_users_get_no_information() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let user = busy_chat(&place);
    for path in [place.path(""), place.path("run"), place.path("run/allstop")] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    let [socket] = sockets(&place).try_into().expect("one socket");
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).expect("a mode");
    let theirs = place.allstop().args("ps").by_user(65_534).end();
    assert!(
        !theirs.stdout.contains("deaf") && !theirs.stdout.contains("chat in process"),
        "{theirs:?}"
    );
    // On Linux, a single thread of a process can have another user. So this thread connects as another user.
    let answer = std::thread::scope(|scope| {
        let other_user = scope.spawn(|| {
            let nobody = Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may do it");
            exchange(&socket, "allstop.list", &json!({}))
        });
        other_user.join().expect("no panic")
    });
    let is_closed = match &answer {
        Ok(text) => text.is_empty(),
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        ),
    };
    assert!(is_closed, "{answer:?}");
    std::fs::set_permissions(place.path("run/allstop"), PermissionsExt::from_mode(0o700))
        .expect("a mode");
    stop(&place, "--all --now").ok();
    user.waits_for("verified.").presses("\x04");
    drop(user.leaves_chat());
}
