//! Any rule and any command: never a panic, and what is allowed stays within what was allowed.
#![no_main]

use std::cell::OnceCell;
use std::sync::Arc;

use allstop_core::Effect;
use allstop_scope::{RootOptions, Scope};
use allstop_tools::permission::Rule;
use allstop_tools::{Decision, PermissionPolicy, ToolInvocation, ToolSpec};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    rule: &'a str,
    command: &'a str,
}

fuzz_target!(|input: Input<'_>| {
    let Input { rule, command } = input;
    if let Ok(rule) = rule.parse::<Rule>() {
        let again = rule.to_string().parse::<Rule>();
        assert_eq!(again, Ok(rule), "a rule reads as it is written");
    }
    let policy = |allow: &[&str], ask: &[&str], deny: &[&str]| {
        PermissionPolicy::parse(allow, ask, deny).expect("the rules are well-formed")
    };
    let git = policy(&["shell:git"], &[], &["shell:rm"]);
    let answer = decide(&git, command);
    if answer == Decision::Allow {
        // Every simple command of it is git's, so more of them is allowed too, and anything else is not.
        for (more, allowed) in [("; git status", true), ("; ls", false), (" | sh", false)] {
            let longer = decide(&git, &format!("{command}{more}"));
            assert_eq!(longer == Decision::Allow, allowed, "{more}");
        }
        // A rule about something else changes nothing.
        let other = decide(&policy(&[], &[], &["shell:ls"]), command);
        assert_eq!(other, decide(&PermissionPolicy::default(), command));
        // A rule that speaks of it wins, in whatever form.
        for stricter in [
            policy(&["shell"], &["shell:git"], &[]),
            policy(&["shell"], &[], &["shell:git"]),
        ] {
            assert_ne!(decide(&stricter, command), Decision::Allow);
        }
    }
    if let Decision::Ask(question) = &answer {
        assert!(
            !question.text.contains(char::is_control),
            "{:?}",
            question.text
        );
    }
    // A denied command behind anything is denied or asked about, never run.
    let hidden = decide(
        &policy(&["shell"], &[], &["shell:rm"]),
        &format!("{command}\nrm x"),
    );
    assert_ne!(hidden, Decision::Allow);
});

fn decide(policy: &PermissionPolicy, command: &str) -> Decision {
    thread_local!(static SHELL: OnceCell<(ToolSpec, Scope, tokio::runtime::Runtime)> = const { OnceCell::new() });
    SHELL.with(|shell| {
        let (spec, scope, _) = shell.get_or_init(shell_and_scope);
        policy.decide(
            spec,
            &ToolInvocation {
                session_id: "s".into(),
                call_id: "c".into(),
                name: "shell".into(),
                arguments: Arc::new(json!({ "command": command })),
                scope: scope.clone(),
                trace: None,
                link: allstop_tools::CallLink::default(),
            },
        )
    })
}

fn shell_and_scope() -> (ToolSpec, Scope, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers can be built");
    let entered = runtime.enter();
    let scope = Scope::root("turn", RootOptions::current());
    drop(entered);
    let spec = ToolSpec {
        name: "shell".into(),
        description: "".into(),
        input_schema: Arc::new(json!({})),
        effect: Effect::Irreversible,
        timeout: None,
        parallel: true,
    };
    (spec, scope, runtime)
}
