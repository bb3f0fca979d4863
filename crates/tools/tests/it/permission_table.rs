//! The table in `docs/permissions.md` matches the code.

use allstop_tools::{PermissionAnswer, PermissionDecision, PermissionPolicy};

use crate::permission::shell;

const PAGE: &str = include_str!("../../../../docs/permissions.md");

/// Returns the cells of the rows below the heading `deny | command | decision`, without backquotes.
fn rows() -> Vec<[String; 3]> {
    let below = PAGE.split("| deny | command | decision |").nth(1);
    let rows = below.expect("the table is there").lines().skip(2);
    rows.map_while(|row| {
        // A bar within a cell is written `\|`.
        let row = row.strip_prefix("| ")?.strip_suffix(" |")?;
        let row = row.replace("\\|", "\0");
        let cells = row.split(" | ");
        let cells = cells.map(|cell| cell.trim_matches('`').replace('\0', "|"));
        Some(<[String; 3]>::try_from(cells.collect::<Vec<_>>()).expect("three cells"))
    })
    .collect()
}

#[tokio::test]
async fn every_row_of_the_documented_table_is_true() {
    let rows = rows();
    assert!(rows.len() > 50, "the table was not found: {rows:?}");
    for [deny, command, expected] in rows {
        let rule = format!("shell:{deny}");
        let policy = PermissionPolicy::parse(&["shell"], &[], &[&*rule]).unwrap();
        let decision = shell(&policy, &command);
        let found = match &decision {
            PermissionDecision::Allow => "runs",
            PermissionDecision::Deny { .. } => "denied",
            PermissionDecision::Ask(question) if question.doubt.is_some() => "in doubt",
            PermissionDecision::Ask(_) => "asks",
        };
        assert_eq!(found, expected, "deny {deny:?}: {command:?}");
        // Even a rule that allows this exact command removes neither a doubt nor a denial.
        if let Ok(allow) =
            format!("shell:{command}").parse::<allstop_tools::permission::PermissionRule>()
        {
            let rules = (&[allow.to_string()], std::slice::from_ref(&rule));
            let both = PermissionPolicy::parse(rules.0, &[], rules.1).unwrap();
            assert_eq!(
                found == "runs",
                shell(&both, &command) == PermissionDecision::Allow,
                "{command:?}"
            );
        }
        if let PermissionDecision::Ask(question) = decision {
            assert!(question.text.contains(&rule), "{}", question.text);
            for answer in [
                PermissionAnswer::AllowOnce,
                PermissionAnswer::AllowForSession,
            ] {
                assert!(
                    !question.restrict_advance_answer(answer).allows(),
                    "{command:?}"
                );
            }
            assert!(question.unanswered().contains(&rule), "{command:?}");
        }
    }
}
