//! Stalls of the network: a model provider that hangs at any point of a request.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::json;

use super::stall::{HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::fault::Fault;
use crate::support::{Allstop, FACT_MAX, Place};

const CONNECTION: [&str; 3] = ["model_call", "connection_closed", "socket_closed"];
const NO_CONNECTION: [&str; 3] = ["model_call", "dropped", "future_dropped"];

/// Sizes of a text below the limit of an answer (2 MiB), and of an event near the largest accepted size (16 MiB).
const LARGE_TEXT_BYTES: usize = 19 * 1024 * 1024 / 10;
const LARGE_EVENT_BYTES: usize = 15 * 1024 * 1024;

fn against<'a>(place: &'a Place, url: &str, args: &str) -> Allstop<'a> {
    let run = place.run().args("--model any --base-url").arg(url);
    run.args(args).arg("hello")
}

/// A run that has sent its request to a provider, which hangs during this answer.
fn provider(place: &Place, args: &str, answer: ServerAnswer) -> HangingRun {
    let server = OpenAiServer::start([answer]);
    let running = against(place, &server.url(), args).start();
    let asked = server.wait_until_blocking(FACT_MAX, |seen| !seen.requests.is_empty());
    assert!(asked.is_ok(), "no request: {running:#?}");
    HangingRun::from(running).against(server)
}

#[test]
fn the_provider_before_its_answer() {
    let begin = |place: &Place, args: &str| {
        provider(place, args, ServerAnswer::stream().stall_before_headers())
    };
    Stall::new(begin)
        .item(CONNECTION)
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_provider_in_mid_stream() {
    let begin = |place: &Place, args: &str| {
        let hanging = provider(place, args, ServerAnswer::text("Half an ans").stall());
        hanging.running.wait_stdout("\"ans\"");
        hanging
    };
    Stall::new(begin)
        .streaming()
        .item(CONNECTION)
        .check(&RunStopMethod::ALL);
}

/// A single event that is so large that receiving and parsing it keeps the turn engine busy.
#[test]
fn the_largest_event_that_is_taken() {
    let begin = |place: &Place, args: &str| {
        let delta = json!({"content": "word ".repeat(LARGE_TEXT_BYTES / 5)});
        let padding = "x".repeat(LARGE_EVENT_BYTES - LARGE_TEXT_BYTES);
        let event = json!({"choices": [{"index": 0, "delta": delta}], "padding": padding});
        let answer = ServerAnswer::stream().event(&event.to_string());
        provider(place, args, answer.stall())
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

/// The queue of the listener is full, so the kernel answers no connection request.
#[test]
fn the_connect() {
    let begin = |place: &Place, args: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        rustix::net::listen(&listener, 0).expect("a shorter queue");
        let address = listener.local_addr().expect("it is bound");
        let mut sockets = Vec::new();
        while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            sockets.push(socket);
        }
        let running = against(place, &format!("http://{address}"), args).start();
        let pid = running.pid();
        let hanging = HangingRun::from(running).holding((sockets, listener));
        hanging.once("a connection under way", || is_connecting(pid, address))
    };
    Stall::new(begin)
        .item(NO_CONNECTION)
        .check(&RunStopMethod::ALL);
}

/// True if the process has a socket that has sent a connection request (SYN) to this address, but has got no answer.
/// The table contains the sockets of the whole machine.
fn is_connecting(pid: i32, address: SocketAddr) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let to = format!("0100007F:{:04X} 02 ", address.port());
    let inode = |line: &str| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?));
    let mut inodes = table
        .lines()
        .filter(|line| line.contains(&to))
        .filter_map(inode);
    inodes.any(|inode| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*inode))
    })
}

/// The server accepts the connection, reads the TLS greeting, and never answers. At this point, the receipt cannot yet
/// list the connection.
#[test]
fn the_handshake_of_tls() {
    let begin = |place: &Place, args: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let running = against(place, &format!("https://{address}/v1"), args).start();
        let (mut socket, _) = listener.accept().expect("a connection");
        // The result is ignored: if a deadline ended the run early, the run sends no greeting.
        let _greeting = socket.read(&mut [0; 64]);
        HangingRun::from(running).holding((socket, listener))
    };
    Stall::new(begin)
        .item(NO_CONNECTION)
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_resolver() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "resolve models.example hang");
        let command = against(place, "http://models.example:1/v1", args);
        HangingRun::from(fault.below(command).start()).once_hit(fault)
    };
    Stall::new(begin)
        .item(NO_CONNECTION)
        .check(&RunStopMethod::ALL);
}

/// The pause before a retry is longer than any deadline, and no call runs during this pause. If the run has a deadline,
/// the pause does not begin.
#[test]
fn the_back_off_after_a_503() {
    let begin = |place: &Place, args: &str| {
        let answer = ServerAnswer::status(503).header("retry-after", "50");
        let hanging = provider(place, args, answer);
        hanging.running.wait_stdout("retry_scheduled");
        hanging
    };
    Stall::new(begin).streaming().check(&[
        RunStopMethod::CtrlC,
        RunStopMethod::CtrlCTwice,
        RunStopMethod::Sigterm,
        RunStopMethod::Sighup,
    ]);
}
