//! Checks that the guide to testing stops agrees with the code. The tests compare the checkers, the methods of a stop,
//! and the figures of the guide's example.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_testkit::check::CHECKERS;
use allstop_testkit::explore::{CheckReport, StopMethod};
use allstop_testkit::{StopSafe, ToolFn};
use serde_json::json;
use tokio::time::sleep;

const GUIDE: &str = include_str!("../../../../docs/testing-stops.md");

/// The guide has a row with the promise of each checker, and no other row.
#[test]
fn guide_names_every_checker() {
    // Only this table has three columns.
    let documented: BTreeMap<_, _> = GUIDE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name, rest.split_once(" | ")?.0)))
        .map(|(name, promise)| (name, promise.to_owned()))
        .collect();
    let checked = CHECKERS.iter();
    let checked = checked.map(|checker| (checker.name, checker.invariant.to_string()));
    assert_eq!(documented, checked.collect());
}

/// The example from the guide, including its bug.
fn save() -> CheckReport {
    let example = StopSafe::new(
        |stage| {
            let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
            let seen = Arc::clone(&folder);
            stage.check("folder", move || {
                if seen.path().join("note.draft").exists() {
                    return Err("a draft is left".to_owned());
                }
                Ok(())
            });
            ToolFn::new("save", move |call| {
                let folder = Arc::clone(&folder);
                async move {
                    let draft = folder.path().join("note.draft");
                    let text = call.arguments["text"].as_str().unwrap_or_default();
                    std::fs::write(&draft, text).expect("room on the disk");
                    sleep(Duration::from_secs(5)).await;
                    std::fs::rename(&draft, folder.path().join("note"))
                        .expect("the draft is there");
                    "saved".to_owned()
                }
            })
        },
        json!({"text": "Buy milk."}),
    );
    example.explore()
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn guide_shows_the_printed_report() {
    let report = save();
    let (_, block) = GUIDE.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let printed = report.to_string();
    let mut rest = in_one_line(&printed);
    for shown in block.split("[…]").map(in_one_line) {
        let (_, after) = rest.split_once(&shown).unwrap_or_else(|| {
            panic!("the guide shows\n\n  {shown}\n\nand this is printed:\n\n{printed}")
        });
        rest = after.to_owned();
    }
    let cases = format!("the example has {} cases", report.cases);
    assert!(GUIDE.contains(&cases), "the guide does not say: {cases}");
}

#[test]
fn guide_names_every_stop_method() {
    let (_, table) = GUIDE.split_once("## Ways to stop\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split_once(" | "));
    let documented: Vec<_> = names
        .flat_map(|(names, _)| names.split('`').step_by(2))
        .collect();
    for name in &documented {
        assert!(
            name.parse::<StopMethod>().is_ok(),
            "{name} is not a way to stop"
        );
    }
    for way in save().cases_by.into_keys() {
        // For each extent and each cause, the guide must have at least one example of a stop. The guide must also name
        // every other method.
        let kind = way.split(':').next().unwrap_or_default();
        let is_documented = documented.iter().any(|name| name.starts_with(kind));
        assert!(
            is_documented || kind == "session",
            "the guide does not name {way}"
        );
    }
}
