//! Any rule and any command: no panic, and only commands within the allow rules are allowed.
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
        // The line contains only git commands. It stays allowed with another git command, and not with any other
        // command.
        for (more, allowed) in [("; git status", true), ("; ls", false), (" | sh", false)] {
            let longer = decide(&git, &format!("{command}{more}"));
            assert_eq!(longer == PermissionDecision::Allow, allowed, "{more}");
        }
        // A rule about another command changes nothing.
        let other = decide(&policy(&[], &[], &["shell:ls"]), command);
        assert_eq!(other, decide(&PermissionPolicy::default(), command));
        // A stricter rule about the command wins, in every form.
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
    // A denied command after any other line is never allowed, unless that line continues. The policy denies it or asks.
    if command.ends_with('\\') {
        return;
    }
    let hidden = decide(
        &policy(&["shell"], &[], &["shell:rm"]),
        &format!("{command}\nrm x"),
    );
    assert_ne!(hidden, PermissionDecision::Allow);
});
