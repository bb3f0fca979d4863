//! Permissions: the decision on a call for each combination of rules, mode, tool and command.

use std::sync::Arc;

use allstop_core::{CallId, Effect, SessionId};
use allstop_scope::{RootOptions, Scope};
use allstop_tools::permission::{
    FixedAnswer, ModeSwitch, PermissionMode, PermissionRule, RuleError,
};
use allstop_tools::{
    PermissionAnswer, PermissionDecision, PermissionPolicy, Permissions, Prompter as _,
    ToolInvocation, ToolSpec,
};
use serde_json::{Value, json};

fn spec(name: &str, effect: Effect) -> ToolSpec {
    ToolSpec::new(name, "", Arc::new(json!({})))
        .effect(effect)
        .parallel(true)
}

fn invocation(name: &str, arguments: Value) -> ToolInvocation {
    ToolInvocation {
        session_id: SessionId::new("s"),
        call_id: CallId::new("c"),
        name: name.into(),
        arguments: Arc::new(arguments),
        scope: Scope::root("test", RootOptions::single_runtime()),
        trace: None,
        link: allstop_tools::CallLink::default(),
        mcp_meta: allstop_tools::McpMeta::default(),
    }
}

fn word(decision: &PermissionDecision) -> &'static str {
    match decision {
        PermissionDecision::Allow => "allow",
        PermissionDecision::Deny { .. } => "deny",
        PermissionDecision::Ask(_) => "ask",
    }
}

pub(crate) fn shell(policy: &PermissionPolicy, command: &str) -> PermissionDecision {
    policy.decide(
        &spec("shell", Effect::Irreversible),
        &invocation("shell", json!({"command": command})),
        PermissionMode::Ask,
    )
}

#[tokio::test]
async fn without_rules_only_read_only_tools_run() {
    let policy = PermissionPolicy::default();
    let own = invocation("background", json!({}));
    assert_eq!(
        policy.decide(
            &spec("background", Effect::Idempotent),
            &own,
            PermissionMode::Ask
        ),
        PermissionDecision::Allow
    );
    for (effect, expected) in [
        (Effect::ReadOnly, "allow"),
        (Effect::Idempotent, "ask"),
        (Effect::Compensatable, "ask"),
        (Effect::Irreversible, "ask"),
    ] {
        let decision = policy.decide(
            &spec("any", effect),
            &invocation("any", json!({})),
            PermissionMode::Ask,
        );
        assert_eq!(word(&decision), expected, "{effect:?}");
    }
}

#[tokio::test]
async fn deny_wins_over_ask_and_ask_over_allow() {
    let decide = |allow: &[&str], ask: &[&str], deny: &[&str]| {
        let policy = PermissionPolicy::parse(allow, ask, deny).unwrap();
        word(&policy.decide(
            &spec("read", Effect::ReadOnly),
            &invocation("read", json!({})),
            PermissionMode::Ask,
        ))
    };
    assert_eq!(decide(&["read"], &["read"], &["read"]), "deny");
    assert_eq!(decide(&["read"], &["read"], &[]), "ask");
    assert_eq!(decide(&[], &["read"], &[]), "ask");
    assert_eq!(decide(&[], &[], &["write", "shell"]), "allow");
}

#[tokio::test]
async fn prefix_allows_only_plain_commands_that_match_completely() {
    let allow = [
        "shell:git status",
        "shell:cargo",
        "shell:ls",
        "shell:echo 'a b'",
    ];
    let policy = PermissionPolicy::parse(&allow, &[], &[]).unwrap();
    for (command, expected) in [
        ("git status", "allow"),
        ("  git   status --short\t-b ", "allow"),
        ("git status -- 'a b' \"c;d\" e\\;f *.rs", "allow"),
        ("git 'status'", "allow"),
        ("git status && cargo test", "allow"),
        ("git status; ls | cargo x || ls &", "allow"),
        ("git status\ncargo build\n", "allow"),
        ("echo 'a b' c", "allow"),
        // The command does not begin with the words of a rule.
        ("git", "ask"),
        ("git statusx", "ask"),
        ("git -C / status", "ask"),
        ("gitstatus", "ask"),
        ("./git status", "ask"),
        ("/tmp/git status", "ask"),
        ("echo a b", "ask"),
        ("", "ask"),
        (" ; ", "ask"),
        // One of several commands is not allowed.
        ("git status && rm -rf x", "ask"),
        ("git status; rm x", "ask"),
        ("git status | sh", "ask"),
        ("git status & rm x", "ask"),
        ("git status\nrm x", "ask"),
        ("git status ;rm x", "ask"),
        ("git status||rm x", "ask"),
        ("git status &&rm x", "ask"),
        ("git status 'a\nb' \n rm x", "ask"),
        // Syntax that could run a different program, or write a file.
        ("git status $(rm x)", "ask"),
        ("git status `rm x`", "ask"),
        ("git status \"$(rm x)\"", "ask"),
        ("git status \"`rm x`\"", "ask"),
        ("git status ${x:-$(rm x)}", "ask"),
        ("git status $x", "ask"),
        ("git status > x", "ask"),
        ("git status >x", "ask"),
        ("git status 2>&1", "ask"),
        ("git status < x", "ask"),
        ("git status <<E\n$(rm x)\nE", "ask"),
        ("ls <(rm x)", "ask"),
        ("(git status)", "ask"),
        ("{ git status; }", "ask"),
        ("git() { rm x; }; git status", "ask"),
        ("if git status; then ls; fi", "ask"),
        ("! git status", "ask"),
        ("git status # x", "ask"),
        ("x=1 git status", "ask"),
        ("PATH=/tmp; git status", "ask"),
        // Commands that are unfinished, or that shells parse differently.
        ("git status '", "ask"),
        ("git status \"", "ask"),
        ("git status \\", "ask"),
        ("git status \\\n; rm x", "ask"),
        ("git status \u{a0}x", "ask"),
        ("git status \r rm x", "ask"),
        ("git status \0", "ask"),
        ("git stat?s", "ask"),
        ("g* status", "ask"),
        ("git {status,x}", "ask"),
        ("~/git status", "ask"),
    ] {
        assert_eq!(word(&shell(&policy, command)), expected, "{command:?}");
    }
}

#[tokio::test]
async fn advance_approval_does_not_cover_doubtful_commands() {
    let policy = PermissionPolicy::parse(&["shell:ls"], &[], &["shell:rm"]).unwrap();
    for (command, expected) in [
        ("mkdir x", PermissionAnswer::AllowOnce),
        ("env rm x", PermissionAnswer::Unanswered),
        ("$(echo rm) x", PermissionAnswer::Unanswered),
    ] {
        let PermissionDecision::Ask(question) = shell(&policy, command) else {
            panic!("{command:?} is not asked about")
        };
        let answer = FixedAnswer(PermissionAnswer::AllowOnce)
            .ask(*question)
            .await;
        assert_eq!(answer, expected, "{command:?}");
    }
}

#[tokio::test]
async fn approval_of_a_doubtful_command_covers_only_that_command() {
    let policy = PermissionPolicy::parse(&["shell"], &[], &["shell:rm"]).unwrap();
    let permissions = Permissions::new(Arc::new(policy));
    let spec = spec("shell", Effect::Irreversible);
    let decide = |command: &str| {
        permissions.decide(&spec, &invocation("shell", json!({"command": command})))
    };
    let PermissionDecision::Ask(question) = decide("env true") else {
        panic!("not asked")
    };
    permissions.allow_for_session(&question);
    assert_eq!(word(&decide("env true")), "allow");
    assert_eq!(word(&decide("env true x")), "ask");
    assert_eq!(word(&decide("env rm")), "ask");
    let in_background = json!({"command": "env true", "background": true});
    let decision = permissions.decide(&spec, &invocation("shell", in_background));
    assert_eq!(word(&decision), "ask");
}

#[tokio::test]
async fn ask_prefix_overrides_allow() {
    let policy = PermissionPolicy::parse(&["shell"], &["shell:git push"], &[]).unwrap();
    assert_eq!(word(&shell(&policy, "git push")), "ask");
    assert_eq!(word(&shell(&policy, "git pull")), "allow");
}

#[test]
fn empty_or_misleading_rules_are_refused() {
    type Expected = fn(&RuleError) -> bool;
    for (rule, expected) in [
        ("", (|e| matches!(e, RuleError::NoTool { .. })) as Expected),
        (":git", |e| matches!(e, RuleError::NoTool { .. })),
        ("shell:", |e| matches!(e, RuleError::EmptyPrefix { .. })),
        ("shell:  ", |e| matches!(e, RuleError::EmptyPrefix { .. })),
        ("read:/etc", |e| {
            matches!(e, RuleError::PrefixOfOtherTool { .. })
        }),
        ("shell:git *", |e| {
            matches!(e, RuleError::NotPlainWords { .. })
        }),
        ("shell:a && b", |e| {
            matches!(e, RuleError::NotPlainWords { .. })
        }),
        ("shell:$x", |e| matches!(e, RuleError::NotPlainWords { .. })),
    ] {
        let error = rule.parse::<PermissionRule>().unwrap_err();
        assert!(expected(&error), "{rule:?}: {error}");
    }
}

#[tokio::test]
async fn session_approval_covers_one_command_in_one_session() {
    let policy = Arc::new(PermissionPolicy::default());
    let permissions = Permissions::new(Arc::clone(&policy));
    let spec = spec("shell", Effect::Irreversible);
    let decide = |permissions: &Permissions, command: &str| {
        permissions.decide(&spec, &invocation("shell", json!({"command": command})))
    };
    let PermissionDecision::Ask(question) = decide(&permissions, "make x") else {
        panic!("not asked")
    };
    assert_eq!(
        FixedAnswer(PermissionAnswer::AllowForSession)
            .ask((*question).clone())
            .await,
        PermissionAnswer::AllowForSession
    );
    permissions.allow_for_session(&question);
    assert_eq!(word(&decide(&permissions, "make x")), "allow");
    assert_eq!(word(&decide(&permissions, "make x; rm y")), "ask");
    assert_eq!(word(&decide(&permissions, "make y")), "ask");
    assert_eq!(word(&decide(&Permissions::new(policy), "make x")), "ask");
}

#[tokio::test]
async fn session_approval_does_not_override_deny() {
    let permissive = Permissions::new(Arc::new(
        PermissionPolicy::parse(&[], &[], &["shell:rm"]).unwrap(),
    ));
    let spec = spec("shell", Effect::Irreversible);
    let call = invocation("shell", json!({"command": "make"}));
    let PermissionDecision::Ask(question) = permissive.decide(&spec, &call) else {
        panic!("not asked")
    };
    permissive.allow_for_session(&question);
    let call = invocation("shell", json!({"command": "rm x"}));
    assert_eq!(word(&permissive.decide(&spec, &call)), "deny");
}

#[tokio::test]
async fn question_is_one_line_without_control_characters() {
    let policy = PermissionPolicy::default();
    let command = format!("ls\x1b[2J\n\u{202e}rm {}", "x".repeat(10_000_000));
    let PermissionDecision::Ask(question) = shell(&policy, &command) else {
        panic!("not asked")
    };
    assert!(
        question
            .text
            .starts_with("shell: ls\\u{1b}[2J\\n\\u{202e}rm xxx"),
        "{}",
        &question.text[..60]
    );
    assert!(question.text.ends_with("more characters"));
    assert!(question.text.len() < 3_000);
    assert!(!question.text.chars().any(char::is_control));
}

#[tokio::test]
async fn question_shows_invisible_characters_escaped() {
    let hidden = "\u{ad}\u{61c}\u{200d}\u{feff}\u{fe0f}\u{a0}\u{e0041}\u{e0101}";
    let arguments = json!({"command": hidden, "path": hidden});
    let tool = format!("tool{hidden}");
    for name in ["shell", &tool] {
        let spec = spec(name, Effect::Irreversible);
        let call = invocation(name, arguments.clone());
        let PermissionDecision::Ask(question) = Permissions::default().decide(&spec, &call) else {
            panic!("not asked")
        };
        for shown in [question.text, question.session_scope] {
            assert!(!shown.contains(|c| hidden.contains(c)), "{shown:?}");
        }
    }
}

/// Another tool may also have an argument named `command`. An answer for the session then applies to that tool, not to
/// a shell command.
#[tokio::test]
async fn command_of_another_tool_is_no_shell_command() {
    let arguments = json!({"command": "make"});
    let ask = |name: &str| {
        let spec = spec(name, Effect::Irreversible);
        match Permissions::default().decide(&spec, &invocation(name, arguments.clone())) {
            PermissionDecision::Ask(question) => question.session_scope,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask("shell"), "exactly this command");
    assert!(ask("remote_shell").contains("remote_shell"), "the tool");
}

#[tokio::test]
async fn question_names_a_background_command() {
    let policy = PermissionPolicy::default();
    let ask = |background: bool| {
        let arguments = json!({"command": "make", "background": background});
        match policy.decide(
            &spec("shell", Effect::Irreversible),
            &invocation("shell", arguments),
            PermissionMode::Ask,
        ) {
            PermissionDecision::Ask(question) => question.text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(false), "shell: make");
    assert_eq!(ask(true), "shell in the background: make");
}

#[tokio::test]
async fn question_about_a_file_starts_with_its_path() {
    let policy = PermissionPolicy::default();
    let arguments = json!({"path": "src/a.rs", "content": "x".repeat(10_000)});
    match policy.decide(
        &spec("write", Effect::Idempotent),
        &invocation("write", arguments),
        PermissionMode::Ask,
    ) {
        PermissionDecision::Ask(question) => assert!(
            question.text.starts_with("write src/a.rs: {"),
            "{}",
            question.text
        ),
        other => panic!("{other:?}"),
    }
}

/// The mode decides which calls run and which calls need the answer of a person. The rules that deny or ask still
/// apply.
#[tokio::test]
async fn mode_decides_where_no_rule_does() {
    use PermissionMode::{AcceptEdits, Ask, Plan};

    let decide = |rules: [&[&str]; 3], mode: PermissionMode, tool: &str, effect: Effect| {
        let policy = PermissionPolicy::parse(rules[0], rules[1], rules[2]).unwrap();
        let mode = ModeSwitch::new(mode);
        let permissions = Permissions::new(Arc::new(policy)).in_mode(mode);
        let arguments = json!({"command": "make", "path": "x"});
        word(&permissions.decide(&spec(tool, effect), &invocation(tool, arguments)))
    };
    let none: [&[&str]; 3] = [&[], &[], &[]];
    let change = Effect::Compensatable;
    for (tool, expected) in [
        ("edit", ["deny", "ask", "allow"]),
        ("write", ["deny", "ask", "allow"]),
        ("shell", ["deny", "ask", "ask"]),
        ("server__write", ["deny", "ask", "ask"]),
        ("agent", ["allow", "allow", "allow"]),
    ] {
        let decided = [Plan, Ask, AcceptEdits].map(|mode| decide(none, mode, tool, change));
        assert_eq!(decided, expected, "{tool}");
    }
    let read = |mode| decide(none, mode, "read", Effect::ReadOnly);
    assert_eq!([Plan, Ask, AcceptEdits].map(read), ["allow"; 3]);
    let allows: [&[&str]; 3] = [&["shell", "edit"], &[], &[]];
    assert_eq!(decide(allows, Plan, "shell", change), "deny");
    assert_eq!(decide(allows, Plan, "edit", change), "deny");
    let policy = PermissionPolicy::default();
    let background = spec("background", Effect::Idempotent);
    let plan = |action: &str| {
        let call = invocation("background", json!({"action": action, "id": "bg_1"}));
        word(&policy.decide(&background, &call, Plan))
    };
    assert_eq!([plan("output"), plan("stop")], ["allow", "deny"]);
    let asks: [&[&str]; 3] = [&[], &["edit"], &["write"]];
    assert_eq!(decide(asks, AcceptEdits, "edit", change), "ask");
    assert_eq!(decide(asks, AcceptEdits, "write", change), "deny");
}

/// A mode can suspend an answer that allows calls for the whole session. The answer applies again after a change to
/// another mode.
#[tokio::test]
async fn switched_to_plan_no_earlier_approval_counts() {
    let mode = ModeSwitch::default();
    let permissions = Permissions::default().in_mode(mode.clone());
    let spec = spec("shell", Effect::Irreversible);
    let call = invocation("shell", json!({"command": "make"}));
    let PermissionDecision::Ask(question) = permissions.decide(&spec, &call) else {
        panic!("not asked")
    };
    permissions.allow_for_session(&question);
    assert_eq!(word(&permissions.decide(&spec, &call)), "allow");
    mode.set(PermissionMode::Plan);
    assert_eq!(word(&permissions.decide(&spec, &call)), "deny");
    mode.set(PermissionMode::Ask);
    assert_eq!(word(&permissions.decide(&spec, &call)), "allow");
}

/// Regression: a model in the mode `accept-edits` wrote the files of a repository into the working directory, with the name of
/// a program in its configuration, and `git status` then ran the program without a question.
#[tokio::test]
async fn git_is_a_read_only_with_a_repository_that_the_model_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec("shell", Effect::Irreversible);
    let call = invocation("shell", json!({"command": "git status"}));
    let decide = || {
        let permissions = Permissions::default().in_folder(folder.path());
        word(&permissions.decide(&spec, &call))
    };
    for file in ["HEAD", "config"] {
        std::fs::write(folder.path().join(file), "").unwrap();
    }
    assert_eq!(decide(), "ask");
    std::fs::write(folder.path().join(".git"), "gitdir: e").unwrap();
    assert_eq!(decide(), "ask");
    std::fs::remove_file(folder.path().join(".git")).unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    assert_eq!(decide(), "allow");
    assert_eq!(word(&Permissions::default().decide(&spec, &call)), "ask");
}
