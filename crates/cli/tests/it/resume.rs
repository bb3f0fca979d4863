//! Continued sessions: the settings that they remember, and the ways to name them.

use std::fs;

use serde_json::Value;

use crate::support::chat_user::SCRIPT;
use crate::support::{Allstop, Place};

fn allstop(place: &Place) -> Allstop<'_> {
    place.allstop().env("ALLSTOP_STORE", place.store())
}

/// Runs a prompt with this model and returns the session's id.
fn session_with(place: &Place, model: &str) -> String {
    let run = allstop(place).args("run --yes --json --model");
    let ended = run.arg(model).arg("short").end().ok();
    let envelope: Value = serde_json::from_str(&ended.stdout).expect("an envelope");
    envelope["session_id"].as_str().expect("an id").to_owned()
}

fn models(place: &Place, id: &str) -> String {
    let shown = place.sessions().args("show --json").arg(id).end().ok();
    let report: Value = serde_json::from_str(&shown.stdout).expect("a report");
    report["model"].to_string()
}

/// The session remembers a scripted model by the absolute path of its script. Flags change the remembered settings.
#[test]
fn session_remembers_its_model() {
    let place = Place::new();
    fs::write(place.work().join("here.yaml"), SCRIPT).expect("a script");
    let other = place.script(SCRIPT);
    let id = session_with(&place, "script:here.yaml");
    let absolute = format!("\"script:{}\"", place.work().join("here.yaml").display());
    assert_eq!(models(&place, &id), absolute);

    for continued in ["run --yes --continue short", "chat --yes --continue short"] {
        let ended = allstop(&place).args(continued).end().ok();
        assert_eq!(ended.stdout, "A short answer.\n", "{continued}");
    }
    let run = allstop(&place).args("run --yes --continue short --model");
    run.arg(&other).end().ok();
    assert_eq!(models(&place, &id), format!("{other:?}"));
}

#[test]
fn session_whose_model_is_gone_names_the_way_out() {
    let place = Place::new();
    let file = place.work().join("here.yaml");
    fs::write(&file, SCRIPT).expect("a script");
    session_with(&place, "script:here.yaml");
    fs::remove_file(&file).expect("it is removed");
    let ended = allstop(&place).args("run --continue short").end();
    assert_eq!(ended.code, 2);
    let said = format!(
        "the session's model script:{} cannot be used",
        file.display()
    );
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(ended.stderr.contains("--model"), "{}", ended.stderr);
}

/// The printed command must work when a user pastes it into a shell.
#[test]
fn other_folder_is_named_with_a_command_that_leads_back() {
    let place = Place::new();
    let home = place.work().join("it's here");
    fs::create_dir(&home).expect("a folder");
    let go = format!(
        "cd \"$1\" && exec \"$0\" run --yes --model {} short",
        place.script(SCRIPT)
    );
    allstop(&place).by_script(&go).arg(&home).end().ok();
    let ended = allstop(&place).args("run --continue short").end().ok();
    let said = "the session was in ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    let (_, command) = ended
        .stderr
        .split_once("To continue there: ")
        .expect("a command");
    let command = command
        .lines()
        .next()
        .expect("a line")
        .replace("&& allstop", "&& \"$0\"");
    let back = allstop(&place).by_script(&format!("{command} short"));
    let back = back.end().ok();
    assert_eq!(back.stdout, "A short answer.\n", "{command}");
}
