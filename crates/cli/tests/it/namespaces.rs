//! Processes in other PID namespaces, such as containers that share the home of their user.

use std::fs;

use serde_json::Value;

use crate::support::{Ended, FACT_MAX, Place, Signal, eventually};

const IN_NAMESPACE: &str = "unshare --user --map-root-user --pid --fork --kill-child --mount-proc";

const SCRIPT: &str = r#"
turns:
  - when: server
    replies:
      - calls: [{tool: shell, arguments: {command: "echo up > up; sleep 600", background: true}}]
      - text: It is up.
  - when: hello
    replies: [{text: Hello.}]
  - when: hang
    replies: [{text: Never., stall: first_token}]
"#;

fn on_store(place: &Place, args: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.store()).end()
}

/// Regression: work of another namespace was reported as gone. A stop found no work, and the log got a record of an end
/// that had not happened.
#[test]
fn left_work_of_another_namespace_is_unreachable() {
    let place = Place::new();
    let run = place.run_script(SCRIPT);
    let run = run.args("--keep-background --json server");
    let run = run.by_script(r#""$0" "$@" > ../envelope.json; exec sleep 600"#);
    let mut container = run.by(IN_NAMESPACE).start();
    let envelope: Value = eventually("the run has ended", || {
        let text = std::fs::read_to_string(place.path("envelope.json")).ok()?;
        serde_json::from_str(&text).ok()
    });
    let id = envelope["session_id"].as_str().expect("an id");
    let listed = on_store(&place, "ps").ok().stdout;
    assert!(
        listed.contains("bg_1, in another PID namespace"),
        "{listed}"
    );
    let hello = place
        .run_script(SCRIPT)
        .args(&format!("--session {id} hello"));
    let hello = hello.end().ok().stderr;
    let said = "bg_1 of an earlier process may still run, in another PID namespace";
    assert!(hello.contains(said), "{hello}");
    for which in [id, "--all"] {
        let stopped = on_store(&place, &format!("stop {which} --json"));
        assert_eq!(stopped.code, 1, "{stopped:?}");
        let stopped: Value = serde_json::from_str(&stopped.stdout).expect("one line of JSON");
        let stop = stopped["stops"].get(0).unwrap_or(&stopped);
        let receipt = &stop["receipt"];
        assert_eq!(receipt["quiet"], false, "{receipt:#}");
        assert_eq!(receipt["items"][0]["state"], "unreachable", "{receipt:#}");
    }
    let shown = place.sessions().args(&format!("show {id} --json"));
    let shown: Value = serde_json::from_str(&shown.end().ok().stdout).expect("JSON");
    let work = &shown["background"][0];
    assert_eq!(
        (&work["alive"], &work["ended"]),
        (&Value::Null, &Value::Null),
        "{work:#}"
    );
    container.signal(Signal::KILL);
    eventually("its processes have ended with it", || {
        place.leftovers().is_empty().then_some(())
    });
}

/// Both processes have pid 1 in their namespaces. Regression: the second process took over the socket of the first
/// process. So the first process could no longer be stopped from other terminals.
#[test]
fn processes_of_two_namespaces_have_a_socket_each() {
    let place = Place::new();
    let hangs = |store: &str| {
        let run = place
            .allstop()
            .args("run --yes --store")
            .arg(place.path(store));
        let run = run.arg("--model").arg(place.script(SCRIPT)).arg("hang");
        run.by(IN_NAMESPACE).start()
    };
    let both = ["a.db", "b.db"].map(hangs);
    eventually("both are listed", || {
        let listed = place.allstop().args("ps").end().ok().stdout;
        (listed.matches("run in process 1,").count() == 2).then_some(())
    });
    let stopped = place.allstop().args("stop --all --json").end().ok().stdout;
    let stopped: serde_json::Value = serde_json::from_str(&stopped).expect("one object");
    let stops = stopped["stops"].as_array().expect("stops");
    assert_eq!(stops.len(), 2, "{stopped:#}");
    for run in both {
        assert_eq!(run.end(FACT_MAX).code, 130);
    }
}

/// Regression: on a read-only file system, no command could read a store.
#[test]
fn store_on_a_read_only_file_system_can_be_read() {
    let place = Place::new();
    let run = place.run_script(SCRIPT).arg("--json").arg("hello");
    let id = run.end().ok().session();
    let mount = "mkdir ro; mount -t tmpfs none ro; cp -a ../store.db* ro/; mount -o remount,ro ro; exec \"$0\" \"$@\"";
    let on_mount = |args: &str| {
        let command = place.allstop().args(args).args("--store ro/store.db");
        let command = command.by_script(mount);
        command.by("unshare --user --map-root-user --mount").end()
    };
    for args in [
        "sessions list",
        "store check",
        "store export -",
        "receipt last",
    ] {
        fs::remove_dir(place.work().join("ro")).ok();
        let ended = on_mount(args);
        let shows = match args {
            "receipt last" => "has no receipt",
            "store check" => "no problem found",
            "sessions list" => "hello",
            _ => &id,
        };
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert!(text.contains(shows), "{args}: {ended:?}");
    }
    fs::remove_dir(place.work().join("ro")).ok();
    let refused = on_mount(&format!("sessions rm {id}"));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("the store is not writable"),
        "{refused:?}"
    );
}

/// Regression: records that were written through one path were lost when the other path was used.
#[test]
fn store_through_a_mount_of_only_its_file_is_refused() {
    let place = Place::new();
    place.run_script(SCRIPT).arg("hello").end().ok();
    let mount =
        "mkdir m; touch m/store.db; mount --bind ../store.db m/store.db; exec \"$0\" \"$@\"";
    let listed = place.allstop().args("sessions list --store m/store.db");
    let listed = listed.by_script(mount);
    let refused = listed.by("unshare --user --map-root-user --mount").end();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("a mount of only this file"),
        "{refused:?}"
    );
}
