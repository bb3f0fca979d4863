//! Errors of the configuration: one line, with line and column.

use std::path::Path;
use std::time::Duration;

use allstop_core::turn::StopPolicy;
use allstop_runtime::config::HookMoment;
use allstop_runtime::{Config, StartError};

use crate::Place;

fn error(text: &str) -> String {
    let error = Config::parse(Path::new("allstop.toml"), text).expect_err(text);
    let said = error.to_string();
    assert!(!said.contains('\n'), "{said:?}");
    assert!(
        !error.hint.is_empty() && !error.hint.contains('\n'),
        "{said}"
    );
    said
}

#[test]
fn limits_on_the_data_of_a_provider_have_a_range() {
    for key in ["answer_bytes_max", "event_bytes_max"] {
        for wrong in ["0", "1023", "16777217"] {
            let said = error(&format!("[model]\n{key} = {wrong}"));
            let expected = format!("`{key}` is {wrong} bytes, expected 1024 to 16777216");
            assert!(said.contains(&expected), "{said}");
        }
    }
    let config = "[model]\nanswer_bytes_max = 1024\nevent_bytes_max = 4096";
    let config = Config::parse(Path::new("allstop.toml"), config).expect("valid");
    let limits = config.model.answer_limits();
    assert_eq!(
        (limits.answer_bytes_max, limits.event_bytes_max),
        (1_024, 4_096)
    );
    let default = Config::default().model.answer_limits();
    assert_eq!(default, allstop_model::AnswerLimits::default());
}

#[test]
fn limits_on_output_files_have_a_range() {
    for key in ["session_output_bytes_max", "output_bytes_max"] {
        for wrong in ["0", "1048575", "1099511627777"] {
            let said = error(&format!("[store]\n{key} = {wrong}"));
            let expected = format!("`{key}` is {wrong} bytes, expected 1048576 to 1099511627776");
            assert!(said.contains(&expected), "{said}");
        }
    }
    let config = "[store]\nsession_output_bytes_max = 1048576\noutput_bytes_max = 1099511627776";
    let config = Config::parse(Path::new("allstop.toml"), config).expect("valid");
    let limits = config.store.output_limits();
    assert_eq!(
        (limits.session_bytes_max, limits.store_bytes_max),
        (1 << 20, 1 << 40)
    );
    let default = Config::default().store.output_limits();
    assert_eq!(
        (default.session_bytes_max, default.store_bytes_max),
        (1 << 30, 8 << 30)
    );
}

#[test]
fn errors_have_line_and_column() {
    let cases = [
        (
            "[limits]\nmax_step = 5\n",
            "allstop.toml:2:1: unknown field `max_step`, expected one of `max_steps`, `max_turns`, `max_budget_tokens`, `loops`",
        ),
        (
            "[limits]\nmax_steps = \"many\"",
            "allstop.toml:2:13: invalid type: string \"many\", expected u32",
        ),
        (
            "[limits]\nmax_steps = -1",
            "allstop.toml:2:13: invalid value: integer `-1`, expected u32",
        ),
        (
            "# ä\n\n[deadlines]\nrun = \"-5s\"",
            "allstop.toml:4:7: the duration \"-5s\" is negative; write 500ms, 1.5s, 5m, 1h30m or 30d",
        ),
        (
            "[deadlines]\nrun = \"5\"",
            "allstop.toml:2:7: the duration \"5\" has no unit; write 5ms, 5s, 5m, 5h or 5d",
        ),
        (
            "[deadlines]\nrun = 5",
            "allstop.toml:2:7: invalid type: integer `5`, expected a string",
        ),
        (
            "[permissions]\nallow = [\"read\", \"grep:x\"]",
            "allstop.toml:2:18: the permission rule \"grep:x\" has a command prefix, which only `shell:` rules may have",
        ),
        (
            "[permissions]\ndeny = [\"shell:\"]",
            "allstop.toml:2:9: the permission rule \"shell:\" has an empty command prefix; write `shell` for every command",
        ),
        (
            "[[hooks]]\non = \"tool_begin\"\ncommand = \"true\"",
            "allstop.toml:2:6: unknown variant `tool_begin`, expected one of `turn_start`, `model_start`, `model_end`, `tool_start`, `tool_end`, `turn_end`, `session_start`, `session_end`, `stop`, `error`",
        ),
        (
            "[[hooks]]\non = \"tool_start\"",
            "allstop.toml:1:1: missing field `command`",
        ),
        (
            "[[guardrails]]\non = \"both\"\ncommand = \"true\"",
            "allstop.toml:2:6: unknown variant `both`, expected `input` or `output`",
        ),
        (
            "on_stop = \"undo\"",
            "allstop.toml:1:11: unknown variant `undo`, expected `rollback` or `keep`",
        ),
        (
            "# Not system_prompt_file.\nsystem_prompt = \"a\"\nsystem_prompt_file = \"b\"",
            "allstop.toml:3:1: both `system_prompt` and `system_prompt_file` are given, expected one of them",
        ),
        (
            "[model.request]\nprovider_options = { a = [1979-05-27] }",
            "allstop.toml:1:2: `provider_options` has a date, `inf` or `nan`, which JSON does not have; use a text or a number",
        ),
        (
            "[model.request.provider_options]\nb = { c = inf }",
            "allstop.toml:1:2: `provider_options` has a date, `inf` or `nan`, which JSON does not have; use a text or a number",
        ),
        (
            "[model\nname = 1",
            "allstop.toml:1:7: unclosed table, expected `]`",
        ),
        (
            "[model]\nname = \"a\"\nname = \"b\"",
            "allstop.toml:3:1: duplicate key",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn full_configuration_is_loaded() {
    let place = Place::new();
    std::fs::write(place.file("prompt.md"), "Be brief.").unwrap();
    let file = place.file("allstop.toml");
    let text = r#"
        system_prompt_file = "prompt.md"
        on_stop = "keep"
        [model]
        name = "script:replies.yaml"
        first_token_timeout = "30s"
        retries = 0
        [limits]
        max_budget_tokens = 10000
        loops = { repeats = 0 }
        [deadlines]
        run = "5m"
        grace = "500ms"
        [session]
        follow_up = "steer"
        on_background_end = "wake"
        unanswered_after = "1h"
        [permissions]
        allow = ["shell:git status"]
        [workspace]
        read = ["/usr/share", "sub"]
        [store]
        path = "store.db"
        [[hooks]]
        on = "turn_end"
        command = "true"
        timeout = "1s"
    "#;
    std::fs::write(&file, text).unwrap();
    let config = Config::load(&file).unwrap();
    assert_eq!(config.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(config.on_stop, Some(StopPolicy::Keep));
    let script = format!("script:{}", place.file("replies.yaml").display());
    assert_eq!(config.model.name, Some(script));
    assert_eq!(config.limits.max_steps, 50);
    assert_eq!(config.limits.loops.repeats, 0);
    assert_eq!(config.limits.loops.ping_pongs, 4);
    assert_eq!(
        config.deadlines.grace.unwrap().0,
        Duration::from_millis(500)
    );
    assert_eq!(
        config.workspace.read,
        [Path::new("/usr/share"), &place.file("sub")]
    );
    assert_eq!(config.store.path, Some(place.file("store.db")));
    assert_eq!(config.hooks[0].on, HookMoment::TurnEnd);
    let written = toml::to_string(&config).unwrap();
    assert_eq!(Config::parse(&file, &written).unwrap(), config);
}

#[test]
fn unreadable_files_are_named() {
    let place = Place::new();
    let load = |name: &str| {
        let error = Config::load(&place.file(name)).expect_err(name);
        let at = format!("{}", place.path().display());
        StartError::from(error).message.replace(&at, "")
    };
    assert_eq!(
        load("nowhere.toml"),
        "/nowhere.toml: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(
        load("."),
        "/.: cannot be read: Is a directory (os error 21)"
    );
    std::fs::write(
        place.file("latin.toml"),
        b"# ok\nsystem_prompt = \"gr\xfcn\"",
    )
    .unwrap();
    assert_eq!(
        load("latin.toml"),
        "/latin.toml:2:20: invalid UTF-8, expected text"
    );
    std::fs::write(place.file("gone.toml"), "system_prompt_file = \"p\"").unwrap();
    assert_eq!(
        load("gone.toml"),
        "/p: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(
        load("../../../../../dev/zero"),
        "/../../../../../dev/zero: is longer than 4194304 bytes"
    );
}

#[test]
fn documented_configuration_is_valid() {
    let documented = include_str!("../../../../docs/configuration.md");
    let (_, text) = documented.split_once("```toml\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let config = Config::parse(Path::new("configuration.md"), text).unwrap();
    assert_eq!(config.hooks.len() + config.guardrails.len(), 2);
    crate::schemas::assert_valid(
        "config",
        &toml::from_str::<serde_json::Value>(text).unwrap(),
    );
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        let text = format!("[model]\n{line}");
        Config::parse(Path::new("configuration.md"), &text)
            .expect("lines in comments are valid too");
    }
}

/// The table of hooks in `docs/configuration.md` lists every moment, in the order of the code.
#[test]
fn every_hook_moment_is_documented() {
    let documented = include_str!("../../../../docs/configuration.md");
    let section = documented
        .split("\n## ")
        .find(|section| section.starts_with("Hooks"));
    let rows = section.expect("there is a section").lines();
    let rows = rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    // The first row is the header of the table.
    let moments: Vec<&str> = rows.map(|(moment, _)| moment).skip(1).collect();
    let schema = schemars::schema_for!(HookMoment);
    let variants = schema.as_value()["oneOf"].as_array().expect("a choice");
    let of_the_code: Vec<&str> = variants
        .iter()
        .map(|variant| variant["const"].as_str().expect("a word"))
        .collect();
    assert_eq!(moments, of_the_code);
}
