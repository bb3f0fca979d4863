//! The systemd units of the package: their command lines start a server or a worker. SIGTERM to the main process, as
//! `systemctl stop` sends it, drains, writes the receipts and leaves no process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use allstop_testkit::nats_server::NatsServer;
use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::place::repository;
use crate::support::wait::{eventually, within};
use crate::support::{FACT_MAX, Place, Running, Signal, processes};

/// Time that systemd must give a stop in addition to the drain: the grace, the use of force, the last records.
const STOP_MAX: Duration = Duration::from_secs(2 + 1 + 2);

/// Entry with the receipt in the metadata of a task.
const RECEIPT: &str = "https://allstop.dev/a2a/receipt/v1";

/// A service unit: the values of each key, in order.
struct Unit(BTreeMap<String, Vec<String>>);

impl Unit {
    fn read(name: &str) -> Self {
        let path = repository().join(format!("packaging/systemd/{name}.service"));
        let text = fs::read_to_string(path).expect("the unit");
        let mut values = BTreeMap::<_, Vec<_>>::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((key, value)) = line.split_once('=') {
                values
                    .entry(key.to_owned())
                    .or_default()
                    .push(value.to_owned());
            }
        }
        Self(values)
    }

    fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    #[track_caller]
    fn one(&self, key: &str) -> &str {
        match self.all(key) {
            [value] => value,
            values => panic!("{key} has the values {values:?}"),
        }
    }

    fn seconds(&self, key: &str) -> Duration {
        seconds(self.one(key))
    }

    fn environment(&self) -> BTreeMap<&str, &str> {
        let variables = self.all("Environment").iter();
        variables
            .map(|variable| variable.split_once('=').expect("a variable"))
            .collect()
    }

    /// The arguments of `ExecStart`, as systemd makes them: `${NAME}` is a part of a word, `$NAME` is any number of
    /// words. `settings` are the lines of the environment file, which wins.
    fn arguments(&self, settings: &[(&str, String)]) -> Vec<String> {
        let mut variables = self.environment();
        variables.extend(settings.iter().map(|(name, value)| (*name, value.as_str())));
        let value = |name: &str| variables.get(name).copied().unwrap_or_default();
        let words = self.one("ExecStart").split_whitespace();
        let words = words.flat_map(|word| match word.strip_prefix('$') {
            Some(name) if name.starts_with('{') => {
                vec![value(name.trim_matches(['{', '}'])).to_owned()]
            }
            Some(name) => value(name).split_whitespace().map(str::to_owned).collect(),
            None => vec![word.to_owned()],
        });
        words.collect()
    }

    /// Starts the command line of the unit in a place, with the folders of the place and a service manager.
    fn start(&self, place: &Place, settings: &[(&str, String)]) -> (Running, UnixDatagram) {
        let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
        manager
            .set_read_timeout(Some(FACT_MAX))
            .expect("a read timeout");
        let state = format!("/var/lib/{}", self.one("StateDirectory"));
        let in_place = |text: &str| {
            let etc = repository().join("packaging/etc").display().to_string();
            let text = text.replace("/etc/allstop", &etc);
            text.replace(&state, &place.path("home").display().to_string())
        };
        let arguments = self.arguments(settings);
        let (program, arguments) = arguments.split_first().expect("a program");
        assert_eq!(program, "/usr/bin/allstop");
        let mut command = place.allstop().env("NOTIFY_SOCKET", place.path("notify"));
        for argument in arguments {
            command = command.arg(in_place(argument));
        }
        (command.start(), manager)
    }
}

/// Seconds of a time such as `90s`.
fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').expect("a number of seconds");
    Duration::from_secs(number.parse().expect("a number"))
}

/// The next message to the service manager.
fn received(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 512];
    let length = manager.recv(&mut buffer).expect("a message");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// The environment file for a model whose command ignores SIGTERM, and a drain that ends before this command.
fn settings(place: &Place, flags: &str, name: &'static str) -> Vec<(&'static str, String)> {
    let command = format!("trap '' TERM; {}; {}", place.sleeper(), place.sleeper());
    let model = place.script(&format!(
        "replies:\n- calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]\n"
    ));
    let flags = format!("--yes --model {model} --grace 0.2s {flags}");
    vec![("DRAIN", "0.3s".to_owned()), (name, flags)]
}

/// Starts a task, and waits until its command runs. Returns the id of the task.
fn start_task(place: &Place, server: &Server) -> String {
    let message = json!({"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "sleep"}]});
    let body = json!({"configuration": {"returnImmediately": true}, "message": message});
    let sent = server.request("POST /message:send", &body.to_string());
    let task: Value = serde_json::from_str(&sent.expect("an answer").1).expect("JSON");
    eventually("the command runs", || {
        let found = processes::of_mark_or_command(place.mark(), place.sleeper());
        let mut commands = found.iter().map(|process| &process.command);
        commands
            .any(|command| command == place.sleeper())
            .then_some(())
    });
    task["task"]["id"].as_str().expect("an id").to_owned()
}

/// Stops the unit like systemd, and checks the messages, the exit code and the remaining processes.
fn stop(unit: &Unit, mut running: Running, manager: &UnixDatagram) {
    running.signal(Signal::TERM);
    let stopping = received(manager);
    assert!(stopping.starts_with("STOPPING=1\nSTATUS="), "{stopping}");
    let ended = running.end(FACT_MAX);
    assert_eq!(unit.one("SuccessExitStatus"), ended.code.to_string());
    for text in [
        "draining for up to 300ms",
        "1 task was stopped; nothing is left running",
    ] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

/// The receipt of a task that a server shows.
fn receipt_of(server: &Server, id: &str) -> Option<Value> {
    let task = server.get(&format!("/tasks/{id}"));
    let receipt = task["metadata"][RECEIPT]["receipt"].clone();
    (task["status"]["state"] == "TASK_STATE_CANCELED").then_some(receipt)
}

fn assert_proved(receipt: &Value) {
    assert_eq!(receipt["quiet"], true, "{receipt}");
    assert_eq!(receipt["cause"]["kind"], "shutdown", "{receipt}");
    let items = receipt["items"].as_array().expect("items");
    let shell = items.iter().find(|item| item["name"] == "shell");
    let shell = shell.unwrap_or_else(|| panic!("the shell is in the receipt: {receipt}"));
    assert_eq!(shell["verified"], "process_tree_empty", "{receipt}");
}

#[test]
fn stop_of_the_server_unit_drains_and_writes_receipts() {
    let (unit, place) = (Unit::read("allstop-serve"), Place::new());
    let settings = settings(&place, "--listen 127.0.0.1:0", "SERVE_FLAGS");
    let (running, manager) = unit.start(&place, &settings);
    assert_eq!(received(&manager), "READY=1");
    let address = running.line_of_stdout("listening on http://");
    let server = Server { running, address };
    let id = start_task(&place, &server);
    stop(&unit, server.running, &manager);
    place.assert_nothing_runs();
    let again = place
        .allstop()
        .args("serve --agent echo --listen 127.0.0.1:0 --store");
    let running = again.arg(place.path("home").join("tasks.db")).start();
    let address = running.line_of_stdout("listening on http://");
    let server = Server { running, address };
    assert_proved(&receipt_of(&server, &id).expect("a stopped task"));
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn stop_of_the_worker_unit_drains_and_writes_receipts() {
    let (unit, place) = (Unit::read("allstop-worker"), Place::new());
    let nats = NatsServer::start(place.path("nats"));
    let front = place.allstop().args("serve --listen 127.0.0.1:0 --store");
    let running = front.arg(nats.url()).start();
    let address = running.line_of_stdout("listening on http://");
    let front = Server { running, address };
    let mut settings = settings(&place, "", "WORKER_FLAGS");
    settings.push(("WORKER_STORE", nats.url()));
    let (running, manager) = unit.start(&place, &settings);
    assert_eq!(received(&manager), "READY=1");
    let id = start_task(&place, &front);
    stop(&unit, running, &manager);
    let receipt = within(FACT_MAX, || receipt_of(&front, &id));
    assert_proved(&receipt.expect("a stopped task"));
    assert_eq!(front.running.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}

/// Regression: the variable was ignored without a message.
#[test]
fn wrong_notify_socket_is_reported_once() {
    let place = Place::new();
    let absent = place.path("absent").display().to_string();
    let socket = absent.clone();
    let server = Server::start_by(&place, "--agent echo", move |serve| {
        serve.env("NOTIFY_SOCKET", &socket)
    });
    let said = format!("NOTIFY_SOCKET is \"{absent}\": No such file or directory");
    server.running.wait_stderr(&said);
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(
        ended.stderr.matches("NOTIFY_SOCKET").count(),
        1,
        "{}",
        ended.stderr
    );
}

/// systemd must not kill a server during its drain, and not restart a server that it stopped.
#[test]
fn units_leave_time_for_the_drain_and_signal_the_main_process_alone() {
    for name in ["allstop-serve", "allstop-worker"] {
        let unit = Unit::read(name);
        let drain = seconds(unit.environment()["DRAIN"]);
        assert!(unit.seconds("TimeoutStopSec") > drain + STOP_MAX, "{name}");
        for (key, value) in [
            ("Type", "notify"),
            ("KillMode", "mixed"),
            ("KillSignal", "SIGTERM"),
            ("Restart", "on-failure"),
            ("RestartPreventExitStatus", "2"),
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("ProtectSystem", "strict"),
            ("DynamicUser", "yes"),
        ] {
            assert_eq!(unit.one(key), value, "{name}: {key}");
        }
        // The server and the keepers of its commands are not dumpable, so `ProtectProc` would hide them from the server.
        assert!(unit.all("ProtectProc").is_empty(), "{name}");
    }
}

/// The files in /etc/allstop are valid as they are installed.
#[test]
fn installed_settings_are_valid() {
    let place = Place::new();
    for name in ["serve", "worker"] {
        let file = repository().join(format!("packaging/etc/{name}.toml"));
        let checked = place.allstop().args("config show --config").arg(file).end();
        assert_eq!(checked.code, 0, "{}", checked.stderr);
    }
}
