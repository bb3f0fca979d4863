//! The places where a run can hang.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use allstop_testkit::openai_server::{Answer, OpenAiServer};

use crate::support::fault::Fault;
use crate::support::terminal::Terminal;
use crate::support::{Allstop, FACT_MAX, Place, Running, eventually};

/// A run that hangs.
#[derive(Debug)]
pub(super) struct Hanging {
    pub(super) running: Running,
    /// What it hangs on, where that is to be looked at afterwards.
    pub(super) server: Option<OpenAiServer>,
    /// Kept until the end.
    _held: Held,
}

#[derive(Debug, Default)]
struct Held {
    _terminal: Option<Terminal>,
    _sockets: Vec<TcpStream>,
    _listener: Option<TcpListener>,
}

/// A place where a run can hang.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) name: &'static str,
    /// Starts a run with these arguments, and waits until it hangs there.
    pub(super) begin: fn(&Place, &str) -> Hanging,
    /// What the receipt says of what hung: kind, how, verified.
    pub(super) item: Option<[&'static str; 3]>,
    /// A first stop does not end it before the grace is over.
    pub(super) resists: bool,
}

const CONNECTION: Option<[&str; 3]> = Some(["model_call", "connection_closed", "socket_closed"]);
const NO_CONNECTION: Option<[&str; 3]> = Some(["model_call", "dropped", "future_dropped"]);
const PROCESS: Option<[&str; 3]> = Some(["process", "sigkill", "process_tree_empty"]);
const TOOL: Option<[&str; 3]> = Some(["tool_call", "sigkill", "process_tree_empty"]);

pub(super) const SPOTS: [Spot; 13] = [
    Spot {
        name: "the provider, before its answer",
        begin: |place, args| provider(place, args, Answer::stream().stall_before_headers()),
        item: CONNECTION,
        resists: false,
    },
    Spot {
        name: "the provider, in mid-stream",
        begin: |place, args| {
            let hanging = provider(place, &streaming(args), Answer::text("Half an ans").stall());
            hanging.running.wait_stdout("\"ans\"");
            hanging
        },
        item: CONNECTION,
        resists: false,
    },
    Spot {
        name: "the connect",
        begin: connect,
        item: NO_CONNECTION,
        resists: false,
    },
    Spot {
        name: "the handshake of TLS",
        begin: handshake,
        // Less than is so: that there was a connection already is not known where it is counted.
        item: NO_CONNECTION,
        resists: false,
    },
    Spot {
        name: "the resolver",
        begin: resolver,
        item: NO_CONNECTION,
        resists: false,
    },
    BACK_OFF,
    Spot {
        name: "a tool",
        begin: tool,
        item: TOOL,
        resists: true,
    },
    Spot {
        name: "a question",
        begin: question,
        item: Some(["permission", "acknowledged", "task_ended"]),
        resists: false,
    },
    Spot {
        name: "a hook",
        begin: |place, args| command_of_config(place, args, "[[hooks]]\non = \"turn_start\""),
        item: PROCESS,
        resists: true,
    },
    Spot {
        name: "a hook of a tool call",
        begin: |place, args| command_of_config(place, args, "[[hooks]]\non = \"tool_start\""),
        item: PROCESS,
        resists: true,
    },
    Spot {
        name: "a guardrail",
        begin: |place, args| command_of_config(place, args, "[[guardrails]]\non = \"input\""),
        item: PROCESS,
        resists: true,
    },
    Spot {
        name: "a read of the store",
        begin: |place, args| store(place, args, &Fault::new(place, "read_hangs")),
        item: None,
        resists: false,
    },
    Spot {
        name: "a write to the store",
        begin: |place, args| {
            let fault = Fault::new(place, "sync_hangs").when(place.path("ready"));
            store(place, args, &fault)
        },
        item: None,
        resists: true,
    },
];

/// The wait before a call is repeated. Nothing runs meanwhile.
pub(super) const BACK_OFF: Spot = Spot {
    name: "the back-off after a 503",
    begin: |place, args| {
        let answer = Answer::status(503).header("retry-after", "50");
        let hanging = provider(place, &streaming(args), answer);
        hanging.running.wait_stdout("retry_scheduled");
        hanging
    },
    item: None,
    resists: false,
};

/// The same arguments, with the events on standard output.
fn streaming(args: &str) -> String {
    args.replace("--json", "--stream-json")
}

fn hanging(running: Running) -> Hanging {
    Hanging {
        running,
        server: None,
        _held: Held::default(),
    }
}

fn against<'a>(place: &'a Place, url: &str, args: &str) -> Allstop<'a> {
    let run = place.run().args("--model any --base-url").arg(url);
    run.args(args).arg("hello")
}

fn provider(place: &Place, args: &str, answer: Answer) -> Hanging {
    let server = OpenAiServer::start([answer]);
    let running = against(place, &server.url(), args).start();
    let asked = server.wait_until_blocking(FACT_MAX, |seen| !seen.requests.is_empty());
    assert!(asked.is_ok(), "no request: {running:#?}");
    Hanging {
        server: Some(server),
        ..hanging(running)
    }
}

/// A listener whose queue is full: the kernel answers nobody.
fn connect(place: &Place, args: &str) -> Hanging {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    rustix::net::listen(&listener, 0).expect("a shorter queue");
    let address = listener.local_addr().expect("it is bound");
    let mut sockets = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        sockets.push(socket);
    }
    let running = against(place, &format!("http://{address}"), args).start();
    let pid = running.pid();
    eventually("a connection under way", || {
        is_connecting(pid, address).then_some(())
    });
    Hanging {
        _held: Held {
            _sockets: sockets,
            _listener: Some(listener),
            ..Held::default()
        },
        ..hanging(running)
    }
}

/// A server that takes the connection, hears the greeting, and says nothing.
fn handshake(place: &Place, args: &str) -> Hanging {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let running = against(place, &format!("https://{address}/v1"), args).start();
    let (mut socket, _) = listener.accept().expect("a connection");
    let mut greeting = [0; 64];
    assert_ne!(socket.read(&mut greeting).expect("a greeting"), 0);
    Hanging {
        _held: Held {
            _sockets: vec![socket],
            _listener: Some(listener),
            ..Held::default()
        },
        ..hanging(running)
    }
}

/// Whether there is a socket to the address that has sent its SYN and heard nothing.
fn is_connecting(pid: i32, address: SocketAddr) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let to = format!("0100007F:{:04X} 02 ", address.port());
    table.lines().any(|line| line.contains(&to))
}

fn resolver(place: &Place, args: &str) -> Hanging {
    let fault = Fault::new(place, "resolver_hangs");
    let command = against(place, "http://models.example:1/v1", args);
    let running = fault.below(command).start();
    fault.wait_seen();
    hanging(running)
}

/// What ignores SIGTERM, with a grandchild in a session of its own.
fn stubborn(place: &Place) -> String {
    format!(
        "trap '' TERM; setsid sleep 600 & sleep 600 & touch {}; wait",
        place.path("ready").display()
    )
}

fn tool(place: &Place, args: &str) -> Hanging {
    let yaml = format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: \"{}\"}}}}]}}]",
        stubborn(place)
    );
    let running = place.run_script(&yaml).args(args).arg("hello").start();
    wait_ready(place);
    hanging(running)
}

/// A model that asks for something harmless.
const ASKS: &str = "replies: [{calls: [{tool: shell, arguments: {command: 'true'}}]}]";

fn question(place: &Place, args: &str) -> Hanging {
    let terminal = Terminal::new();
    let running = place
        .run_unasked()
        .arg("--model")
        .arg(place.script(ASKS))
        .args(args)
        .arg("hello")
        .on_terminal(terminal.line())
        .start();
    terminal.wait("[y]es");
    Hanging {
        _held: Held {
            _terminal: Some(terminal),
            ..Held::default()
        },
        ..hanging(running)
    }
}

fn command_of_config(place: &Place, args: &str, section: &str) -> Hanging {
    let config = format!("{section}\ncommand = \"\"\"{}\"\"\"\n", stubborn(place));
    let config = place.file("allstop.toml", config);
    let run = place.run_script(ASKS).arg("--config").arg(config);
    let running = run.args(args).arg("hello").start();
    wait_ready(place);
    hanging(running)
}

fn store(place: &Place, args: &str, fault: &Fault) -> Hanging {
    let yaml = format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: 'touch {}'}}}}]}}, {{text: done}}]",
        place.path("ready").display()
    );
    let run = place.run_script(&yaml).args(args).arg("hello");
    let running = fault.below(run).start();
    fault.wait_seen();
    hanging(running)
}

fn wait_ready(place: &Place) {
    eventually("what hangs is there", || {
        place.path("ready").exists().then_some(())
    });
}
