//! The published schemas match the code, and real output is valid under them.

use std::path::PathBuf;

use allstop_core::Receipt;
use allstop_model::Reply;
use allstop_runtime::{
    Config, Envelope, EventLine, EventSchema, EventsMissed, McpServerEvent, SessionSetup,
    StreamEvent, StreamLine,
};
use allstop_session::SessionEventKind;
use allstop_testkit::PublishedSchema;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Place, within};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../../schemas/{name}.schema.json"))
}

fn published(name: &str) -> Value {
    let text = std::fs::read_to_string(path(name)).expect("it is published");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Compares a schema with the published schema. `UPDATE_SCHEMAS=1` rewrites the file.
#[expect(
    clippy::disallowed_methods,
    reason = "a switch for people who run the tests"
)]
fn assert_current(name: &str, schema: &Schema) {
    let mut sorted = json!(schema);
    // A field that moves in the code does not change the file.
    sorted.sort_all_objects();
    let current = Schema::try_from(sorted).expect("it is a schema");
    let current = serde_json::to_string_pretty(&current).expect("it is JSON") + "\n";
    if std::env::var("UPDATE_SCHEMAS").is_ok() {
        std::fs::write(path(name), &current).expect("it can be written");
    }
    assert!(
        published(name) == json!(schema),
        "schemas/{name}.schema.json is not what the code says; run with UPDATE_SCHEMAS=1"
    );
}

fn schema_of_output<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

/// Validates against the published schema, not against one generated from the code.
pub(crate) fn assert_valid(name: &str, value: &impl Serialize) {
    let value = serde_json::to_value(value).expect("it is JSON");
    let checked = PublishedSchema::of(name).check(&value);
    assert!(checked.is_ok(), "{checked:?}");
}

#[test]
fn published_schemas_are_current() {
    let config = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Config>();
    assert_current("config", &config);
    assert_current("envelope", &schema_of_output::<Envelope>());
    assert_current("receipt", &schema_of_output::<Receipt>());
    assert_current("events", &schema_of_output::<StreamLine>());
}

#[test]
fn every_key_of_the_envelope_is_required() {
    let schema = published("envelope");
    let keys = schema["properties"].as_object().unwrap().len();
    assert_eq!(schema["required"].as_array().unwrap().len(), keys);
    assert_eq!(keys, 21);
}

#[test]
fn wrong_value_is_not_valid() {
    let schema = PublishedSchema::of("config");
    assert_eq!(schema.check(&json!({"deadlines": {"run": "5m"}})), Ok(()));
    for wrong in [
        json!({"deadlines": {"run": "5"}}),
        json!({"limits": {"max_step": 5}}),
        json!({"hooks": [{"on": "tool_start"}]}),
        json!({"permissions": {"allow": ["grep:x"]}}),
    ] {
        assert!(schema.check(&wrong).is_err(), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_run_are_valid() {
    let place = Place::new();
    let replies = vec![
        Reply::default()
            .and_reasoning("hm")
            .and_text("Look.")
            .call("list", json!({})),
        Reply::text("").malformed_call("read", "{\"path"),
        Reply::text("")
            .call("shell", json!({"command": "true", "background": true}))
            .usage(3, 4),
        Reply::text("done"),
    ];
    let system = place.system("", replies).await;
    let session = system.new_session(None, SessionSetup::default()).await;
    let session = session.unwrap().session;
    let mut events = session.watch();
    let outcome = within(session.send("go").unwrap().outcome()).await;
    let mut seen = 0;
    while let Some(event) = events.try_next() {
        if let SessionEventKind::Live(event) = event.kind {
            assert_valid("events", &line(StreamEvent::Agent(&event)));
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen} events");
    let missed = EventsMissed { count: 3 };
    assert_valid("events", &line(StreamEvent::Missed(missed)));
    let server = McpServerEvent {
        server: "files".into(),
        available: false,
        why: Some("it closed the connection".into()),
        next_try_ms: Some(500),
        tools: vec!["files__read".into()],
    };
    assert_valid("events", &line(StreamEvent::McpServer(server)));
    let envelope = Envelope::of_run(session.id(), &[outcome]).unwrap();
    assert_valid("events", &StreamLine::End(Box::new(envelope)));
}

fn line(event: StreamEvent<'_>) -> StreamLine<'_> {
    let at = allstop_core::Timestamp::from_unix_ms(0);
    StreamLine::Event(EventLine {
        schema: EventSchema::V1,
        at,
        event,
    })
}
