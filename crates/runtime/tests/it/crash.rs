//! `kill -9` of a process that has background work: nothing is lost, and nothing is taken for what it is not.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use allstop_core::receipt::ItemState;
use allstop_model::Reply;
use allstop_runtime::Asks;
use allstop_scope::process::{Signal, is_alive, signal};

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
async fn attached_work_ends_with_its_owner_and_its_end_is_recorded() {
    let (place, token) = (Place::new(), token());
    let mut owner = Owner::start(&place, &token, "hold");
    owner.hear("ready");
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    owner.kill();
    // At once: its keeper may still be at it.
    let system = place.system("", vec![Reply::text("again")]).await;
    let open = within(system.resume_session("s1".into(), Asks::Prompter))
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
async fn work_that_was_only_said_to_be_let_go_is_not_claimed_to_run() {
    let (place, token) = (Place::new(), token());
    let mut owner = Owner::start(&place, &token, "say");
    owner.hear("ready");
    owner.kill();
    wait_until("its keeper kills it", || sleepers(&token) == 0).await;
    let system = place.system("", vec![Reply::text("again")]).await;
    let open = within(system.resume_session("s1".into(), Asks::Prompter))
        .await
        .unwrap();
    assert_eq!(open.found.len(), 1);
    assert!(open.found[0].detached);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_outlives_a_kill_in_the_middle_of_letting_go_is_found() {
    let mut let_go = 0;
    for round in 0_u64..16 {
        let (place, token) = (Place::new(), token());
        let mut owner = Owner::start(&place, &token, "keep");
        owner.hear("ready");
        // The moment of the kill: from at once to well after, since letting go takes a few milliseconds.
        tokio::time::sleep(Duration::from_micros(round * 400)).await;
        owner.kill();
        let mut rest = String::new();
        owner.output.read_to_string(&mut rest).expect("readable");
        let was_let_go = rest.trim() == "kept";

        let system = place.system("", vec![Reply::text("again")]).await;
        let open = within(system.resume_session("s1".into(), Asks::Prompter))
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
            // Let go without having said so, or being killed at this moment.
            assert!(found.detached, "round {round}: {found:?}");
        } else {
            assert_eq!(
                sleepers(&token),
                0,
                "round {round}: it runs, and nobody knows"
            );
        }
        within(open.session.close()).await;
        // Whoever is there can be told to end, by what the log says.
        drop(signal(&keeper, Signal::Term));
        wait_until("it ends", || sleepers(&token) == 0 && !is_alive(&keeper)).await;
    }
    assert!(let_go > 0, "the kills all came too early to show anything");
}
