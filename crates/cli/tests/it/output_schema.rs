//! `run --output-schema`: the JSON on standard output, the second request after a wrong answer, and the errors.

use std::fs;
use std::os::unix::fs::symlink;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::command::COMMAND;
use crate::support::place::repository;
use crate::support::{FACT_MAX, Place};

const SCHEMA: &str = r#"{
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
    "additionalProperties": false
}"#;

const CORRECTED: &str = r#"replies: [{text: '{"n": "one"}'}, {text: '{"n": 1}'}]"#;
const WRONG: &str = r#"replies: [{text: 'Well.'}, {text: '{"n": "one"}'}]"#;

fn schema(place: &Place) -> std::path::PathBuf {
    place.file("schema.json", SCHEMA)
}

#[test]
fn standard_output_is_only_the_json_of_the_answer() {
    let place = Place::new();
    let run = || {
        let run = place.run_script(CORRECTED).arg("--output-schema");
        run.arg(schema(&place))
    };
    let ended = run().arg("count").end().ok();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("{\"n\": 1}\n", ""));
    let ended = run().args("--json count").end().ok();
    let envelope = ended.envelope();
    assert_eq!(envelope["output_json"], json!({"n": 1}));
    assert_eq!(
        (&envelope["output"], &envelope["steps"]),
        (&json!("{\"n\": 1}"), &json!(2))
    );
}

#[test]
fn second_wrong_answer_fails_with_the_path_and_the_reason() {
    let place = Place::new();
    let run = || {
        let run = place.run_script(WRONG).arg("--output-schema");
        run.arg(schema(&place))
    };
    let ended = run().arg("count").end();
    assert_eq!((ended.code, &*ended.stdout), (1, ""), "{ended:#?}");
    assert!(
        ended.stderr.contains("`n` must be of type integer"),
        "{ended:#?}"
    );
    let ended = run().args("--json count").end();
    let envelope = ended.envelope();
    assert_eq!(envelope["error"]["kind"], "answer_mismatch");
    assert_eq!(
        (&envelope["output"], &envelope["output_json"]),
        (&json!(""), &Value::Null)
    );
}

#[test]
fn each_turn_has_an_answer() {
    let place = Place::new();
    let script = r#"replies: [{text: '{"n": 1}'}, {text: '{"n": 2}'}]"#;
    let run = place.run_script(script).arg("--output-schema");
    let ended = run.arg(schema(&place)).args("one --then two").end().ok();
    assert_eq!(ended.stdout, "{\"n\": 1}\n{\"n\": 2}\n");
}

#[test]
fn wrong_schema_is_a_usage_error_before_any_request() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("{}")]);
    let long = format!("\"{}\"", "x".repeat(1024 * 1024));
    for (content, problem) in [
        (Some("{"), "is not JSON"),
        (Some(r#"{"type": "nonsense"}"#), "is no valid JSON schema"),
        (Some(&*long), "is longer than 1 MiB"),
        (None, "does not exist"),
    ] {
        let file = place.work().join("wrong.json");
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let run = place.run().args("--model any --base-url").arg(server.url());
        let ended = run.arg("--output-schema").arg(&file).arg("hi").end();
        assert_eq!(ended.code, 2, "{ended:#?}");
        assert!(ended.stderr.contains(problem), "{ended:#?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn request_has_the_schema_and_the_configured_settings() {
    let place = Place::new();
    let server = OpenAiServer::start([ServerAnswer::text("{\"n\": 1}")]);
    let config = place.file(
        "allstop.toml",
        "[model.request]\ntemperature = 0.2\nreasoning_effort = 'low'\ntool_choice = 'none'\n\
         provider_options = { service_tier = 'flex' }\n",
    );
    let run = place.run().args("--model any --base-url").arg(server.url());
    let run = run.arg("--config").arg(config).arg("--output-schema");
    let ended = run.arg(schema(&place)).arg("count").end().ok();
    assert_eq!(ended.stdout, "{\"n\": 1}\n");
    let requests = server.requests();
    let body = &requests[0].body;
    let format = &body["response_format"]["json_schema"];
    assert_eq!(
        (&format["strict"], &format["schema"]["required"]),
        (&json!(true), &json!(["n"]))
    );
    let keys = [
        "temperature",
        "reasoning_effort",
        "tool_choice",
        "service_tier",
    ];
    let values = keys.map(|key| body[key].clone());
    assert_eq!(json!(values), json!([0.2, "low", "none", "flex"]));
}

/// The example of docs/scripts.md, without the last program of its pipe.
#[test]
fn documented_example_works() {
    let page = fs::read_to_string(repository().join("docs/scripts.md")).expect("the page");
    let (_, section) = page.split_once("## Answers as JSON").expect("the section");
    let (_, rest) = section.split_once("```sh\n").expect("an example");
    let (example, _) = rest.split_once("\n```\n").expect("its end");
    let place = Place::new();
    let programs = place.path("bin");
    fs::create_dir(&programs).expect("a folder");
    symlink(COMMAND, programs.join("allstop")).expect("a link");
    let example = example.replace(" | jq .modules", "");
    let example = place.allstop().by_script(&example);
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let ended = example.env("PATH", path).start().end(FACT_MAX).ok();
    assert_eq!(ended.stdout, "{\"modules\": 7}\n", "{ended:#?}");
}
