//! `demo --cluster` with real NATS servers: the tests check its output and its leftovers.

use std::path::PathBuf;
use std::time::Duration;

use allstop_testkit::nats_server::program;
use serde_json::Value;

use crate::support::{Allstop, FACT_MAX, Place, Running, Signal, eventually, processes};

/// Time limit of the whole demo, within the limit of a test.
const DEMO_MAX: Duration = Duration::from_secs(58);

/// An isolated environment, and the folder in which the demo creates its temporary folder.
struct DemoPlace {
    place: Place,
    temporary: PathBuf,
}

impl DemoPlace {
    fn new() -> Self {
        let place = Place::new();
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).expect("a folder");
        Self { place, temporary }
    }

    fn demo(&self, args: &str) -> Allstop<'_> {
        let demo = self.place.allstop().args("demo --cluster").args(args);
        let demo = demo.arg("--nats-server").arg(program());
        demo.env("TMPDIR", &self.temporary)
    }

    /// The processes of the demo: the command line contains the folder, or the environment contains the mark of the
    /// test.
    fn running(&self) -> Vec<processes::Process> {
        let all = processes::of_text(&self.temporary.display().to_string());
        all.into_iter().chain(self.place.leftovers()).collect()
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        let left: Vec<_> = std::fs::read_dir(&self.temporary)
            .expect("a folder")
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let left = self.running();
        assert!(left.is_empty(), "still there: {left:#?}");
    }

    /// A demo with running tasks.
    fn started(&self) -> Running {
        let running = self.demo("").start();
        running.wait_stdout("stubborn-2 runs at");
        running
    }
}

#[test]
fn interrupted_cluster_demo_leaves_nothing() {
    let here = DemoPlace::new();
    let ended = here.started().end_by(Signal::INT);
    assert_eq!(ended.code, 130, "{ended:#?}");
    assert!(ended.stdout.contains("the demo was stopped"), "{ended:#?}");
    assert!(ended.since_signal() < Duration::from_secs(4), "{ended:#?}");
    here.assert_nothing_is_left();
}

#[test]
fn killed_cluster_demo_leaves_no_process() {
    let here = DemoPlace::new();
    let mut running = here.started();
    running.signal(Signal::KILL);
    running.end(FACT_MAX);
    eventually("its keepers have ended all", || {
        here.running().is_empty().then_some(())
    });
}

#[test]
fn cluster_demo_without_a_server_says_where_to_get_one() {
    let place = Place::new();
    let demo = || place.allstop().args("demo --cluster");
    let without = demo().env("PATH", place.path("home")).end();
    assert_eq!(without.code, 1, "{without:#?}");
    assert!(without.stderr.contains("https://nats.io"), "{without:#?}");
    let wrong = demo().args("--nats-server /nowhere/nats-server").end();
    assert_eq!(wrong.code, 1, "{wrong:#?}");
    assert!(wrong.stderr.contains("not found"), "{wrong:#?}");
    let script = "#!/bin/sh\necho 'nats-server: v2.10.29'\n";
    let old = place.file("nats-server", script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&old, mode).expect("a mode");
    let old = demo().arg("--nats-server").arg(old).end();
    assert_eq!(old.code, 1, "{old:#?}");
    assert!(old.stderr.contains("has version 2.10.29"), "{old:#?}");
    place.assert_nothing_runs();
}

#[test]
fn every_proof_of_the_cluster_demo_holds() {
    let here = DemoPlace::new();
    // This folder belongs to another process. Workers create folders with this name, too, but the demo must neither
    // count nor remove this folder.
    let of_others = here.temporary.join("allstop-output");
    std::fs::create_dir(&of_others).expect("a folder");
    std::fs::write(of_others.join("theirs"), "").expect("a file");
    let ended = here.demo("--json").start().end(DEMO_MAX);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    println!("{said:#}");
    assert_eq!(said["schema"], "allstop.demo/1");
    assert_eq!(said["ok"], true);
    assert_eq!(said["receipt"]["quiet"], true);
    assert_eq!(said["tasks"].as_array().expect("tasks").len(), 12);
    let proofs = said["proofs"].as_array().expect("proofs");
    assert!(proofs.len() > 20, "{proofs:#?}");
    for proof in proofs {
        assert_eq!(proof["found"], proof["expected"], "{proof}");
    }
    std::fs::remove_file(of_others.join("theirs")).expect("their file is still there");
    std::fs::remove_dir(of_others).expect("nothing else is in their folder");
    here.assert_nothing_is_left();
}
