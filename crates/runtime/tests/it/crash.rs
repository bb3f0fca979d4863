//! `kill -9` of a process with background work: no work is lost or reported wrongly.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use allstop_core::receipt::ItemState;
use allstop_model::Reply;
use allstop_process::{ProcessSignal, is_alive, signal};
use allstop_runtime::SessionSetup;

use crate::{HELPER, Place, owner_answers, sleepers, state_of, token, wait_until, within};

struct Owner {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Owner {
    fn start(place: &Place, token: &str, mode: &str) -> Self {
        let mut child = Command::new(HELPER)
            .arg("own")
            .arg(place.path())
            .args(["s1", token, mode])
            .stdout(Stdio::piped())
            .spawn()
            .expect("an owner");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    fn hear(&mut self, line: &str) {
        let mut read = String::new();
        self.output.read_line(&mut read).expect("readable");
        assert_eq!(read.trim(), line);
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child");
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_work_ends_with_its_owner_and_is_recorded() {
    let (place, token) = (Place::new(), token());
    let mut owner = Owner::start(&place, &token, "hold");
    owner.hear("ready");
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    owner.kill();
    // Resumes the session at once, while the keeper (the process that watches the work) may still be ending the work.
    let system = place.system("", vec![Reply::text("again")]).await;
    let open = within(system.resume_session("s1".into(), SessionSetup::default()))
        .await
        .unwrap();
    assert_eq!(sleepers(&token), 0);
    assert!(
        !open.found[0].alive && !open.found[0].detached,
        "{:?}",
        open.found
    );
    within(owner_answers(&open.session)).await;
    let state = state_of(&system, "s1").await;
    let ended = &state.background()[0].ended;
    assert!(
        matches!(ended, Some((ItemState::Unknown { .. }, None))),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn work_recorded_as_detached_but_killed_is_found() {
    let (place, token) = (Place::new(), token());
    let mut owner = Owner::start(&place, &token, "say");
    owner.hear("ready");
    owner.kill();
    wait_until("its keeper kills it", || sleepers(&token) == 0).await;
    let system = place.system("", vec![Reply::text("again")]).await;
    let open = within(system.resume_session("s1".into(), SessionSetup::default()))
        .await
        .unwrap();
    assert_eq!(open.found.len(), 1);
    assert!(open.found[0].detached);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_survives_a_kill_during_detaching_is_found() {
    let mut let_go = 0;
    for round in 0_u64..16 {
        let (place, token) = (Place::new(), token());
        let mut owner = Owner::start(&place, &token, "keep");
        owner.hear("ready");
        // The time of the kill changes with the round: from immediately to long after the detachment, which takes a few
        // milliseconds.
        tokio::time::sleep(Duration::from_micros(round * 400)).await;
        owner.kill();
        let mut rest = String::new();
        owner.output.read_to_string(&mut rest).expect("readable");
        let was_let_go = rest.trim() == "kept";

        let system = place.system("", vec![Reply::text("again")]).await;
        let open = within(system.resume_session("s1".into(), SessionSetup::default()))
            .await
            .unwrap();
        let [found] = open.found.as_slice() else {
            panic!("round {round}: {:?}", open.found)
        };
        let keeper = found.keeper.clone().expect("it has one");
        if was_let_go {
            let_go += 1;
            assert!(found.alive && found.detached, "round {round}: {found:?}");
        } else if found.alive {
            // The work was detached, but the owner was killed before it could print the id.
            assert!(found.detached, "round {round}: {found:?}");
        } else {
            assert_eq!(
                sleepers(&token),
                0,
                "round {round}: it runs, but was not found"
            );
        }
        within(open.session.close()).await;
        // The log names the keeper, which ends the surviving work on SIGTERM.
        drop(signal(&keeper, ProcessSignal::Term));
        wait_until("it ends", || sleepers(&token) == 0 && !is_alive(&keeper)).await;
    }
    assert!(let_go > 0, "every kill came before the detachment");
}
