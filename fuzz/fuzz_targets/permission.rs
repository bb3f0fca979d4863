//! Any rule and any command must not cause a panic. Only commands that the allow rules cover are allowed.
#![no_main]

use allstop_tools::permission::PermissionRule;
use allstop_tools::{PermissionDecision, PermissionPolicy};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../shell.rs"]
mod shell;
use shell::decide;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    rule: &'a str,
    command: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    let Input { rule, command } = input;
    if let Ok(rule) = rule.parse::<PermissionRule>() {
        let again = rule.to_string().parse::<PermissionRule>();
        assert_eq!(again, Ok(rule), "a rule round-trips");
    }
    let policy = |allow: &[&str], ask: &[&str], deny: &[&str]| {
        PermissionPolicy::parse(allow, ask, deny).expect("the rules are well-formed")
    };
    let git = policy(&["shell:git"], &[], &["shell:rm"]);
    let answer = decide(&git, command);
    if answer == PermissionDecision::Allow {
        // The line contains only git commands. If another git command is added, the line stays allowed. If any other
        // command is added, the line is no longer allowed.
        for (more, allowed) in [("; git status", true), ("; ls", false), (" | sh", false)] {
            let longer = decide(&git, &format!("{command}{more}"));
            assert_eq!(longer == PermissionDecision::Allow, allowed, "{more}");
        }
        // A rule about another command must not change the decision.
        let other = decide(&policy(&[], &[], &["shell:ls"]), command);
        assert_eq!(other, decide(&PermissionPolicy::default(), command));
        // A stricter rule about the command always has priority.
        for stricter in [
            policy(&["shell"], &["shell:git"], &[]),
            policy(&["shell"], &[], &["shell:git"]),
        ] {
            assert_ne!(decide(&stricter, command), PermissionDecision::Allow);
        }
    }
    if let PermissionDecision::Ask(question) = &answer {
        assert!(
            !question.text.contains(char::is_control),
            "{:?}",
            question.text
        );
    }
    // If a denied command follows any other line, it must not be allowed: the policy denies it or asks. The exception
    // is a line that continues on the next line.
    if command.ends_with('\\') {
        return;
    }
    let hidden = decide(
        &policy(&["shell"], &[], &["shell:rm"]),
        &format!("{command}\nrm x"),
    );
    assert_ne!(hidden, PermissionDecision::Allow);
});
