//! Background work after the end of its run.

use std::time::Duration;

use allstop_core::Extent;
use allstop_core::receipt::ItemState;
use allstop_core::record::SessionRecord;
use allstop_model::Reply;
use allstop_process::ProcessSignal;
use allstop_runtime::{OpenSession, SessionSetup, System, scan_orphans};
use allstop_scope::StopRequest;
use allstop_session::{BackgroundDetachError, Session};
use serde_json::json;

use crate::{
    Place, owner_answers, records_of, sleepers, state_of, token, user, wait_until, within,
};

async fn with_background(place: &Place, command: &str) -> (System, Session) {
    let replies = vec![
        Reply::default().call("shell", json!({"command": command, "background": true})),
        Reply::text("started"),
    ];
    let system = place.system("", replies).await;
    let open = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await;
    let session = open.expect("a new session").session;
    let sent = session.send("go").expect("the message is taken");
    let outcome = within(sent.outcome()).await;
    assert!(outcome.is_completed(), "{outcome:?}");
    (system, session)
}

async fn resumed(system: &System) -> OpenSession {
    let open = system.resume_session("s1".into(), SessionSetup::default());
    within(open).await.expect("the session is there")
}

async fn ended(system: &System) -> Option<(ItemState, Option<i32>)> {
    state_of(system, "s1").await.background()[0].ended.clone()
}

fn running(session: &Session) -> usize {
    let works = session.background();
    works.iter().filter(|work| work.is_running()).count()
}

fn stop_of_all() -> StopRequest {
    StopRequest::new(Extent::Process, user())
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_of_background_work_is_recorded_once_with_its_time() {
    let place = Place::new();
    let token = token();
    let (system, session) = with_background(&place, &format!("sleep {token}")).await;
    let receipt = system.scope().stop(stop_of_all()).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    within(session.close()).await;
    let end = ended(&system).await;
    let Some((ItemState::Stopped { after_ms, .. }, _)) = end else {
        panic!("{end:?}")
    };
    assert!(after_ms.as_f64() > 0.0);
    assert_eq!(sleepers(&token), 0);
    within(session.close()).await;
    let records = records_of(&system, "s1").await;
    let is_end = |record: &&SessionRecord| matches!(record, SessionRecord::BackgroundEnded { .. });
    let ends = records.iter().filter(is_end).count();
    assert_eq!(ends, 1, "the end is recorded once");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_idle_after_attached_work_has_ended() {
    let place = Place::new();
    let (system, session) =
        with_background(&place, "until test -e go; do sleep 0.01; done; exit 3").await;
    let idle = session.background_idle();
    let mut idle = std::pin::pin!(idle);
    tokio::select! {
        biased;
        () = &mut idle => panic!("it runs"),
        () = tokio::task::yield_now() => {}
    }
    std::fs::write(place.file("go"), "").unwrap();
    within(idle).await;
    within(session.close()).await;
    assert_eq!(
        ended(&system).await,
        Some((ItemState::Finished { after_ms: None }, Some(3)))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_work_is_found_until_it_ends() {
    let place = Place::new();
    let token = token();
    let command = format!("echo up; sleep {token}");
    let (system, session) = with_background(&place, &command).await;
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    let detached = within(session.detach_background()).await.unwrap();
    let [kept] = detached.as_slice() else {
        panic!("{detached:?}")
    };
    assert!(kept.refused.is_none() && kept.work.detached, "{kept:?}");
    assert_eq!(&*kept.work.name, command);
    let keeper = kept.work.keeper.clone().expect("it has one");
    assert_eq!(running(&session), 0);
    let receipt = system.scope().stop(stop_of_all()).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    within(session.close()).await;
    system.close().await;
    assert_eq!(sleepers(&token), 1, "no stop covers detached work");

    let system = place.system("", vec![Reply::text("again")]).await;
    let open = resumed(&system).await;
    let [found] = open.found.as_slice() else {
        panic!("{:?}", open.found)
    };
    assert!(found.alive && found.detached, "{found:?}");
    assert_eq!(found.keeper.as_ref(), Some(&keeper));
    let output = found.output.as_deref().unwrap();
    wait_until("its keeper writes its output", || {
        std::fs::read_to_string(output).unwrap() == "up\n"
    })
    .await;
    within(owner_answers(&open.session)).await;
    assert!(ended(&system).await.is_none());
    within(open.session.close()).await;

    allstop_process::signal(&keeper, ProcessSignal::Term).unwrap();
    wait_until("its keeper ends it", || {
        sleepers(&token) == 0 && !allstop_process::is_alive(&keeper)
    })
    .await;
    let open = resumed(&system).await;
    assert!(!open.found[0].alive);
    within(owner_answers(&open.session)).await;
    let end = ended(&system).await;
    assert!(
        matches!(end, Some((ItemState::Unknown { .. }, None))),
        "{end:?}"
    );
    within(open.session.close()).await;
    let open = resumed(&system).await;
    assert!(open.found.is_empty(), "its end is recorded once");
    within(open.session.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_continue_after_those_in_the_log() {
    let place = Place::new();
    let (system, session) = with_background(&place, "true").await;
    within(session.background_idle()).await;
    within(session.close()).await;
    system.close().await;
    let replies = vec![
        Reply::default().call("shell", json!({"command": "true", "background": true})),
        Reply::text("started"),
    ];
    let replies = [vec![Reply::text(""), Reply::text("")], replies].concat();
    let system = place.system("", replies).await;
    let session = resumed(&system).await.session;
    within(session.send("go").unwrap().outcome()).await;
    let state = state_of(&system, "s1").await;
    let works = state.background().iter();
    let ids: Vec<&str> = works.map(|work| work.id.as_str()).collect();
    assert_eq!(ids, ["bg_1", "bg_2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_without_a_keeper_is_not_detached() {
    let place = Place::new();
    let token = token();
    let mut options = place.options(
        "",
        Some(allstop_model::ScriptedModel::new(vec![
            Reply::default().call(
                "shell",
                json!({"command": format!("sleep {token}"), "background": true}),
            ),
            Reply::text("started"),
        ])),
    );
    options.scopes.containment = allstop_process::ContainmentChoice::GroupAndMarker;
    let system = System::open(options).await.unwrap();
    let open = system
        .new_session(Some("s1".into()), SessionSetup::default())
        .await;
    let session = open.unwrap().session;
    within(session.send("go").unwrap().outcome()).await;
    let detached = within(session.detach_background()).await.unwrap();
    let [kept] = detached.as_slice() else {
        panic!("{detached:?}")
    };
    assert!(!kept.work.detached, "{kept:?}");
    let Some(BackgroundDetachError::NotPossible(why)) = &kept.refused else {
        panic!("{kept:?}")
    };
    assert_eq!(why, "only a process with a keeper can be detached");
    let found = scan_orphans(&state_of(&system, "s1").await);
    assert!(found[0].alive && !found[0].detached);
    let order = stop_of_all().grace(Duration::ZERO);
    assert!(system.scope().stop(order).receipt().await.quiet());
    assert_eq!(sleepers(&token), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_not_detached_if_the_store_is_closed() {
    let place = Place::new();
    let token = token();
    let (system, session) = with_background(&place, &format!("sleep {token}")).await;
    system.close().await;
    within(session.detach_background())
        .await
        .expect_err("the store is closed");
    assert_eq!(running(&session), 1);
    assert!(
        session.orphaned_work().is_empty(),
        "nothing counts as detached"
    );
    let receipt = system.scope().stop(stop_of_all()).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(sleepers(&token), 0);
}
