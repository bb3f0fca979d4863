//! What becomes of background work when its run has ended.

use std::time::Duration;

use allstop_agent::{EventSink, History};
use allstop_core::receipt::ItemState;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_model::Reply;
use allstop_runtime::{OpenSession, System, found_work};
use allstop_scope::StopOrder;
use allstop_scope::process::Signal;
use serde_json::json;

use crate::{Place, sleepers, token, wait_until, within};

async fn with_background(place: &Place, command: &str) -> (System, OpenSession, History) {
    let replies = vec![
        Reply::default().call("shell", json!({"command": command, "background": true})),
        Reply::text("started"),
    ];
    let system = place.system("", replies).await;
    let (open, history) = system
        .new_session(Some("s1".into()))
        .await
        .expect("a new session");
    let run = open.run(history, ["go"], EventSink::none());
    let outcome = within(run.finish()).await.expect("no panic");
    (system, open, outcome.history)
}

fn ended(history: &History) -> Option<(ItemState, Option<i32>)> {
    let History::Logged(stream) = history else {
        panic!("it is logged")
    };
    stream.state().background()[0].ended.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_recorded_with_its_time() {
    let place = Place::new();
    let token = token();
    let (system, open, mut history) = with_background(&place, &format!("sleep {token}")).await;
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::User));
    let receipt = system.scope().stop(order).receipt().await;
    assert!(receipt.quiet(), "{receipt:?}");
    open.record_background(&mut history).await.unwrap();
    let Some((ItemState::Stopped { after_ms, .. }, _)) = ended(&history) else {
        panic!("{:?}", ended(&history))
    };
    assert!(after_ms.as_f64() > 0.0);
    assert_eq!(sleepers(&token), 0);
    open.record_background(&mut history)
        .await
        .expect("nothing is left to say");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_comes_when_attached_work_has_ended() {
    let place = Place::new();
    let (_system, open, mut history) =
        with_background(&place, "until test -e go; do sleep 0.01; done; exit 3").await;
    let idle = open.wait_idle();
    let mut idle = std::pin::pin!(idle);
    tokio::select! {
        biased;
        () = &mut idle => panic!("it runs"),
        () = tokio::task::yield_now() => {}
    }
    std::fs::write(place.file("go"), "").unwrap();
    within(idle).await;
    open.record_background(&mut history).await.unwrap();
    assert_eq!(
        ended(&history),
        Some((ItemState::Finished { after_ms: None }, Some(3)))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_work_runs_on_and_is_found_until_it_ends() {
    let place = Place::new();
    let token = token();
    let command = format!("echo up; sleep {token}");
    let (system, open, mut history) = with_background(&place, &command).await;
    wait_until("it sleeps", || sleepers(&token) == 1).await;
    let kept = within(open.keep_background(&mut history)).await.unwrap();
    assert!(kept.not_kept.is_empty(), "{kept:?}");
    assert_eq!(&*kept.kept[0].name, command);
    assert!(open.background.running().is_empty());
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::User));
    assert!(system.scope().stop(order).receipt().await.quiet());
    drop((open, history));
    system.close().await;
    assert_eq!(sleepers(&token), 1, "no stop of ours covers it");

    let system = place.system("", vec![Reply::text("again")]).await;
    let (open, history) = system.resume_session("s1".into()).await.unwrap();
    let [found] = open.found.as_slice() else {
        panic!("{:?}", open.found)
    };
    assert!(found.alive && found.detached, "{found:?}");
    assert_eq!(found.keeper.as_ref(), Some(&kept.kept[0].keeper));
    let output = found.output.as_deref().unwrap();
    wait_until("its keeper writes its output", || {
        std::fs::read_to_string(output).unwrap() == "up\n"
    })
    .await;
    assert!(ended(&history).is_none());
    drop((open, history));

    allstop_scope::process::signal(&kept.kept[0].keeper, Signal::Term).unwrap();
    wait_until("its keeper ends it", || {
        sleepers(&token) == 0 && !allstop_scope::process::is_alive(&kept.kept[0].keeper)
    })
    .await;
    let (open, history) = system.resume_session("s1".into()).await.unwrap();
    assert!(!open.found[0].alive);
    assert!(matches!(
        ended(&history),
        Some((ItemState::Unknown { .. }, None))
    ));
    drop((open, history));
    let (open, history) = system.resume_session("s1".into()).await.unwrap();
    assert!(open.found.is_empty(), "its end is recorded once");
    drop((open, history));
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_go_on_where_the_log_ends() {
    let place = Place::new();
    let (system, open, history) = with_background(&place, "true").await;
    within(open.wait_idle()).await;
    drop((open, history));
    system.close().await;
    let replies = vec![
        Reply::default().call("shell", json!({"command": "true", "background": true})),
        Reply::text("started"),
    ];
    let replies = [vec![Reply::text(""), Reply::text("")], replies].concat();
    let system = place.system("", replies).await;
    let (open, history) = system.resume_session("s1".into()).await.unwrap();
    let run = open.run(history, ["go"], EventSink::none());
    let outcome = within(run.finish()).await.unwrap();
    let History::Logged(stream) = &outcome.history else {
        panic!("it is logged")
    };
    let ids: Vec<&str> = stream
        .state()
        .background()
        .iter()
        .map(|work| work.id.as_str())
        .collect();
    assert_eq!(ids, ["bg_1", "bg_2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_keeper_nothing_is_let_go_and_nothing_is_claimed() {
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
    options.scopes.containment = allstop_scope::process::ContainmentChoice::GroupAndMarker;
    let system = System::open(options).await.unwrap();
    let (open, history) = system.new_session(None).await.unwrap();
    let run = open.run(history, ["go"], EventSink::none());
    let mut history = within(run.finish()).await.unwrap().history;
    let kept = open.keep_background(&mut history).await.unwrap();
    assert!(kept.kept.is_empty());
    assert_eq!(
        kept.not_kept[0].why,
        "only a process with a keeper can be let go"
    );
    let History::Logged(stream) = &history else {
        panic!("it is logged")
    };
    let found = found_work(stream.state());
    assert!(found[0].alive && !found[0].detached);
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::User));
    assert!(
        system
            .scope()
            .stop(order.grace(Duration::ZERO))
            .receipt()
            .await
            .quiet()
    );
    assert_eq!(sleepers(&token), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_down_is_not_let_go() {
    let place = Place::new();
    let token = token();
    let (system, open, mut history) = with_background(&place, &format!("sleep {token}")).await;
    system.close().await;
    open.keep_background(&mut history)
        .await
        .expect_err("the store is closed");
    assert_eq!(open.background.running().len(), 1);
    let order = StopOrder::new(Extent::Process, Cause::new(CauseKind::User));
    assert!(system.scope().stop(order).receipt().await.quiet());
    assert_eq!(sleepers(&token), 0);
}
