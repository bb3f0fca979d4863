//! Tests of the reports on sessions, as text and as JSON.

use allstop_core::process::ProcessIdentity;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::{CallId, Effect, SessionId, TurnNumber};
use allstop_log::session::stream_of;
use allstop_log::{AppendId, Version};
use allstop_terminal::Style;

use super::test_records::{
    DAY_MS, at, background, cancelled, committed, eventful, model_call, open, started,
    this_process, tool_call,
};
use super::*;
use crate::args::PruneLimits;

fn view() -> View {
    View {
        style: Style::new(false, true),
        width: 120,
        now: at(3 * DAY_MS),
    }
}

async fn run(log: &MemoryLog, command: SessionsCommand) -> Result<String, SessionsError> {
    let mut out = String::new();
    let mut print = |printed| match printed {
        Printed::Json(text) => {
            // The snapshots show the object in several lines.
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            out += &serde_json::to_string_pretty(&value).unwrap();
            out.push('\n');
        }
        Printed::Text(mut text) => {
            if !text.shown().ends_with('\n') {
                text.push_line("");
            }
            out += text.shown();
        }
    };
    let flags = SameFlags::default();
    let prices = ModelPrices::default();
    let place = SessionsPlace {
        prices: &prices,
        log,
        files: &SessionFiles {
            outputs: "/nowhere".into(),
            history: None,
            scope: Scope::root("files", RootOptions::current()),
        },
        open: &[],
    };
    on_log(&command, place, view(), &flags, &mut print).await?;
    Ok(out)
}

async fn list(log: &MemoryLog, json: bool) -> String {
    run(
        log,
        SessionsCommand::List {
            json,
            limit: None,
            all: false,
        },
    )
    .await
    .unwrap()
}

async fn show(log: &MemoryLog, id: &str, json: bool, full: bool) -> Result<String, SessionsError> {
    let id = id.to_owned();
    run(log, SessionsCommand::Show { id, json, full }).await
}

async fn rm(log: &MemoryLog, ids: &[&str]) -> Result<String, SessionsError> {
    let ids = ids.iter().map(ToString::to_string).collect();
    run(log, SessionsCommand::Rm { ids }).await
}

fn redacted(text: &str) -> String {
    let this = this_process();
    // Replace each number together with the text before it, because a pid can be any number.
    let mut text = text.replace(&*this.boot_id, "[boot]");
    for (before, number) in [
        ("process ", u64::from(this.pid)),
        ("pid ", u64::from(this.pid)),
        ("pid\": ", u64::from(this.pid)),
        ("ticks\": ", this.start_ticks),
        ("namespace\": ", this.pid_namespace.unwrap_or_default()),
    ] {
        text = text.replace(&format!("{before}{number}"), &format!("{before}[number]"));
    }
    text
}

#[tokio::test]
async fn no_sessions() {
    let log = MemoryLog::new();
    assert_eq!(list(&log, false).await, "no sessions\n");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&list(&log, true).await).unwrap(),
        serde_json::json!({"schema": "allstop.sessions/1", "sessions": []})
    );
}

#[tokio::test]
async fn a_list() {
    let log = MemoryLog::new();
    drop(eventful(&log).await);
    drop(open(&log, "01JEMPTY").await);
    let mut running = open(&log, "01JRUNNING").await;
    running.append(vec![started(1, DAY_MS, "x")]).await.unwrap();
    let mut crashed = open(&log, "01JCRASHED").await;
    crashed.append(vec![started(1, DAY_MS, "x")]).await.unwrap();
    drop(crashed);
    let idle = open(&log, "01JIDLE").await;
    let damaged = stream_of(&SessionId::from("01JDAMAGED"));
    log.append(&damaged, Version(0), AppendId(1), vec!["{".into()])
        .await
        .unwrap();
    insta::assert_snapshot!(redacted(&list(&log, false).await));
    insta::assert_snapshot!(redacted(&list(&log, true).await));
    drop((running, idle));
}

#[tokio::test]
async fn a_session_is_shown_while_a_run_has_it_open() {
    let log = MemoryLog::new();
    let session = eventful(&log).await;
    insta::assert_snapshot!(redacted(
        &show(&log, "01JEVENTFUL", false, false).await.unwrap()
    ));
    drop(session);
}

#[tokio::test]
async fn a_session_in_full() {
    let log = MemoryLog::new();
    drop(eventful(&log).await);
    insta::assert_snapshot!(redacted(&show(&log, "01jev", false, true).await.unwrap()));
    insta::assert_snapshot!(redacted(&show(&log, "01JE", true, true).await.unwrap()));
}

#[tokio::test]
async fn a_turn_without_an_ending_is_under_way_or_was_cut_off() {
    let log = MemoryLog::new();
    let mut session = open(&log, "s").await;
    session.append(vec![started(1, 0, "x")]).await.unwrap();
    let said = show(&log, "s", false, false).await.unwrap();
    assert!(said.contains("under way"), "{said}");
    drop(session);
    let said = show(&log, "s", false, false).await.unwrap();
    assert!(said.contains("no end in the log"), "{said}");
}

#[tokio::test]
async fn an_id_that_is_not_there_names_those_that_look_like_it() {
    let log = MemoryLog::new();
    for id in ["01JABCDEF", "01JABCXYZ", "02"] {
        drop(open(&log, id).await);
    }
    let problem = async |id: &str| {
        show(&log, id, false, false)
            .await
            .unwrap_err()
            .into_problem(&SameFlags::default())
    };
    let unknown = problem("01JABCDEG").await;
    assert_eq!(unknown.message, "session `01JABCDEG` not found");
    assert_eq!(unknown.hint.as_deref(), Some("did you mean `01JABCDEF`?"));
    assert_eq!(unknown.code(), 2);
    let ambiguous = problem("01JABC").await;
    let said = "`01JABC` matches 2 sessions: 01JABCDEF, 01JABCXYZ";
    assert_eq!((ambiguous.message.as_str(), ambiguous.code()), (said, 2));
    for id in ["", "zzzz", "session/02", "\u{1b}"] {
        let problem = problem(id).await;
        assert_eq!(problem.code(), 2, "{id}");
        assert!(problem.hint.unwrap().contains("sessions list"), "{id}");
    }
}

/// The ids of sessions from the same hour begin alike, so the list shows the ends of the ids.
#[tokio::test]
async fn the_end_of_an_id_that_the_list_shows_is_enough() {
    let log = MemoryLog::new();
    let (one, other) = ("01M82ZDK405NZBRRXREGE6SJCE", "01M82ZDM7EKJQ5Z7S3J5QQZWR7");
    for id in [one, other] {
        drop(open(&log, id).await);
    }
    let listed = list(&log, false).await;
    assert!(
        listed.contains("EGE6SJCE ") && !listed.contains(one),
        "{listed}"
    );
    let shown = show(&log, "ege6sjce", false, false).await.unwrap();
    assert!(shown.contains(one), "{shown}");
    let ambiguous = show(&log, "01M8", false, false).await.unwrap_err();
    let said = "`01M8` matches 2 sessions: EGE6SJCE, J5QQZWR7";
    assert_eq!(ambiguous.to_string(), said);
}

#[tokio::test]
async fn a_removed_session_is_gone() {
    let log = MemoryLog::new();
    drop(open(&log, "01JONE").await);
    drop(open(&log, "01JTWO").await);
    let wrong = rm(&log, &["01JONE", "01JTHREE"]).await.unwrap_err();
    assert!(matches!(wrong, SessionsError::NotFound { .. }));
    assert_eq!(
        list(&log, false).await.lines().count(),
        2,
        "a slip removes nothing"
    );
    let said = rm(&log, &["01JO", "01JONE", "01JT"]).await.unwrap();
    assert_eq!(said, "removed 01JONE\nremoved 01JTWO\n");
    assert_eq!(list(&log, false).await, "no sessions\n");
}

async fn prune(
    log: &MemoryLog,
    older_than: Option<&str>,
    keep: Option<usize>,
    dry_run: bool,
) -> String {
    let limits = PruneLimits {
        older_than: older_than.map(|text| text.parse().unwrap()),
        keep,
    };
    let command = SessionsCommand::Prune { limits, dry_run };
    run(log, command).await.unwrap()
}

#[tokio::test]
async fn old_sessions_are_pruned_but_not_those_in_use() {
    let log = MemoryLog::new();
    // The clock of the view shows the third day.
    for (id, day) in [("01JOLD", 0), ("01JMID", 1), ("01JNEW", 2)] {
        let mut session = open(&log, id).await;
        session
            .append(vec![started(1, day * DAY_MS, "hello")])
            .await
            .unwrap();
    }
    let in_use = open(&log, "01JUSED").await;
    drop(eventful(&log).await);
    let said = prune(&log, Some("30h"), Some(1), true).await;
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("kept 01JUSED: the session `01JUSED` is in use")
            && lines[0]
                .ends_with("stop and close it first: `allstop stop 01JUSED --extent session`"),
        "{said}"
    );
    assert_eq!(
        lines[1..],
        [
            "would remove 01JMID",
            "would remove 01JOLD",
            "2 sessions of 5 would be removed"
        ]
    );
    assert!(
        list(&log, false).await.contains("01JOLD"),
        "nothing is removed"
    );
    let said = prune(&log, Some("30h"), None, false).await;
    assert!(said.ends_with("2 sessions of 5 removed\n"), "{said}");
    let left = list(&log, true).await;
    assert!(
        left.contains("01JNEW") && !left.contains("01JMID"),
        "{left}"
    );
    drop(in_use);
    let said = prune(&log, None, Some(2), false).await;
    assert_eq!(said, "removed 01JNEW\n1 session of 3 removed\n");
}

#[tokio::test]
async fn show_distinguishes_running_lost_and_reported_calls() {
    let log = MemoryLog::new();
    let mut session = open(&log, "s").await;
    let mut records = vec![started(1, 0, "pay")];
    records.extend(model_call(1));
    records.push(tool_call(1, "call_1", "pay 17", Effect::Irreversible));
    session.append(records).await.unwrap();
    let shown = show(&log, "s", false, false).await.unwrap();
    assert!(shown.contains("shell `pay 17`: running"), "{shown}");
    let unknown = SessionRecord::CallFinished {
        turn: TurnNumber(1),
        id: CallId::from("call_1"),
        outcome: CallOutcome::Unknown,
        usage: None,
        finish: None,
        exit_code: None,
        result: None,
    };
    session.append(vec![unknown, cancelled(1)]).await.unwrap();
    let shown = show(&log, "s", false, false).await.unwrap();
    assert!(
        shown.contains("the model learns it with the next message"),
        "{shown}"
    );
    let mut records = vec![started(2, 0, "again")];
    records.extend(model_call(2));
    records.push(committed(2));
    session.append(records).await.unwrap();
    let shown = show(&log, "s", false, false).await.unwrap();
    assert!(shown.contains("the model was informed"), "{shown}");
    let shown = show(&log, "s", true, false).await.unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["lost"][0]["reported"], true, "{shown:#}");
}

/// A session keeps its work in view of `stop` and `sessions show`, so it stays while the work may run.
#[tokio::test]
async fn session_whose_work_is_out_of_sight_is_not_pruned() {
    let elsewhere = ProcessIdentity {
        pid_namespace: Some(1),
        ..this_process()
    };
    let shell = background("bg_1", 1, Some(elsewhere));
    let mut agent = background("bg_1", 1, None);
    if let SessionRecord::BackgroundStarted { kind, .. } = &mut agent {
        *kind = allstop_core::record::BackgroundKind::Agent;
    }
    for (work, is_kept) in [(shell, true), (agent, false)] {
        let log = MemoryLog::new();
        let mut session = open(&log, "01JWORK").await;
        session
            .append(vec![started(1, 0, "hello"), work])
            .await
            .unwrap();
        drop(session);
        let said = prune(&log, Some("30h"), None, false).await;
        assert_eq!(said.starts_with("kept 01JWORK: "), is_kept, "{said}");
    }
}

#[tokio::test]
async fn a_session_in_use_is_not_removed() {
    let log = MemoryLog::new();
    let session = open(&log, "s").await;
    let problem = rm(&log, &["s"])
        .await
        .unwrap_err()
        .into_problem(&SameFlags::default());
    assert_eq!(problem.code(), 1);
    assert!(
        problem.message.starts_with("the session `s` is in use"),
        "{problem:?}"
    );
    drop(session);
    rm(&log, &["s"]).await.unwrap();
}

#[tokio::test]
async fn a_session_whose_background_work_runs_is_not_removed() {
    let log = MemoryLog::new();
    drop(eventful(&log).await);
    let problem = rm(&log, &["01JEVENTFUL"])
        .await
        .unwrap_err()
        .into_problem(&SameFlags::default());
    let said =
        "background work of the session `01JEVENTFUL` still runs: npm run dev (pid [number])";
    assert_eq!(redacted(&problem.message), said);
}

/// The clock went back before the last session began.
#[tokio::test]
async fn number_of_the_list_and_last_name_a_session() {
    let log = MemoryLog::new();
    for (id, day) in [("01JOLD", 0), ("01JNEW", 2), ("01J0002", 1)] {
        let mut session = open(&log, id).await;
        session
            .append(vec![started(1, day * DAY_MS, "x")])
            .await
            .unwrap();
    }
    for (given, meant) in [
        ("last", "01J0002"),
        ("1", "01J0002"),
        ("2", "01JNEW"),
        ("3", "01JOLD"),
        ("0002", "01J0002"),
    ] {
        let shown = show(&log, given, false, false).await.unwrap();
        assert!(shown.contains(meant), "{given}: {shown}");
    }
    let none = show(&log, "4", false, false).await.unwrap_err();
    assert_eq!(
        none.to_string(),
        "session number 4 not found: the store has 3 sessions"
    );
    // Five digits are too many for a number of the list. They count as a part of an id.
    let part = show(&log, "00021", false, false).await.unwrap_err();
    assert!(matches!(part, SessionsError::NotFound { .. }), "{part}");
    let listed = list(&log, false).await;
    assert!(listed.starts_with("1   01J0002"), "{listed}");
}

#[tokio::test]
async fn list_is_whole_at_every_width() {
    let log = MemoryLog::new();
    let mut session = open(&log, "01M82ZDK405NZBRRXREGE6SJCE").await;
    let prompt = "Bitte 修复 alle Tests 👩‍👩‍👧‍👦 and then explain every change that you made, in detail, with reasons";
    session.append(vec![started(1, 0, prompt)]).await.unwrap();
    for width in [38, 60, 80, 120] {
        let wide = View { width, ..view() };
        let Ok(Printed::Text(text)) = list::list(&log, wide, false, None).await else {
            panic!("words");
        };
        for line in text.lines() {
            assert!(line.width() <= width, "{width}: {}", line.shown());
        }
        let text = text.shown();
        for part in ["EGE6SJCE", "3 days ago", "1 turn", "/home/me", "Bitte"] {
            assert!(text.contains(part), "{width}: {text}");
        }
    }
}

#[tokio::test]
async fn list_is_bounded() {
    let log = MemoryLog::new();
    for number in 0..25 {
        drop(open(&log, &format!("01JX{number:05}")).await);
    }
    let listed = list(&log, false).await;
    assert_eq!(listed.lines().count(), 21, "{listed}");
    assert!(listed.ends_with("5 older; --all shows them\n"), "{listed}");
    let json = list(&log, true).await;
    assert_eq!(json.matches("session_id").count(), 25);
}
