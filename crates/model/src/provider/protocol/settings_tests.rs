//! Each setting in the request of each protocol.

use std::sync::Arc;

use allstop_core::Message;
use serde_json::{Value, json};

use super::{Protocol, SettingError};
use crate::{
    ModelRequest, OutputSchema, ReasoningEffort, RequestSettings, ToolChoice, ToolDeclaration,
};

const PROTOCOLS: [Protocol; 4] = [
    Protocol::ChatCompletions,
    Protocol::Responses,
    Protocol::Messages,
    Protocol::GenerateContent,
];

fn request(settings: RequestSettings) -> ModelRequest {
    ModelRequest {
        settings: Arc::new(settings),
        ..ModelRequest::new(vec![Arc::new(Message::user("hi"))])
    }
}

fn with_tool(settings: RequestSettings) -> ModelRequest {
    ModelRequest {
        tools: Arc::new([ToolDeclaration {
            name: "shell".into(),
            description: "Runs.".into(),
            input_schema: Arc::new(json!({"type": "object"})),
        }]),
        ..request(settings)
    }
}

/// The fields that the settings add to or change in the request.
fn added(protocol: Protocol, model: &str, with: &ModelRequest) -> Result<Value, SettingError> {
    let mut without = with.clone();
    (without.settings, without.output_schema) = (Arc::default(), None);
    let before = protocol.body(model, &without)?;
    let mut added = protocol.body(model, with)?;
    if let Value::Object(fields) = &mut added {
        fields.retain(|name, value| before.get(name) != Some(value));
    }
    Ok(added)
}

/// The added fields in all protocols, in the order of [`PROTOCOLS`].
fn all(with: &ModelRequest) -> [Result<Value, SettingError>; 4] {
    PROTOCOLS.map(|protocol| added(protocol, "m", with))
}

fn settings() -> RequestSettings {
    RequestSettings::default()
}

#[test]
fn sampling_has_the_names_of_each_protocol() {
    let openai = json!({"temperature": 0.2, "top_p": 0.9});
    let google = json!({"generationConfig": {"temperature": 0.2, "topP": 0.9}});
    assert_eq!(
        all(&request(settings().temperature(0.2).top_p(0.9))),
        [
            Ok(openai.clone()),
            Ok(openai.clone()),
            Ok(openai),
            Ok(google)
        ]
    );
    assert_eq!(
        all(&request(settings().stop_sequence("END"))),
        [
            Ok(json!({"stop": ["END"]})),
            Err(SettingError::Unsupported("stop_sequences")),
            Ok(json!({"stop_sequences": ["END"]})),
            Ok(json!({"generationConfig": {"stopSequences": ["END"]}})),
        ]
    );
    let unsupported = |name| Err(SettingError::Unsupported(name));
    for (set, name, chat, google) in [
        (
            settings().seed(7),
            "seed",
            json!({"seed": 7}),
            json!({"seed": 7}),
        ),
        (
            settings().presence_penalty(1.5),
            "presence_penalty",
            json!({"presence_penalty": 1.5}),
            json!({"presencePenalty": 1.5}),
        ),
        (
            settings().frequency_penalty(-0.5),
            "frequency_penalty",
            json!({"frequency_penalty": -0.5}),
            json!({"frequencyPenalty": -0.5}),
        ),
    ] {
        let google = json!({"generationConfig": google});
        let expected = [Ok(chat), unsupported(name), unsupported(name), Ok(google)];
        assert_eq!(all(&request(set)), expected);
    }
}

#[test]
fn reasoning_effort_is_a_level_or_a_budget() {
    let low = request(settings().reasoning_effort(ReasoningEffort::Low));
    assert_eq!(
        all(&low),
        [
            Ok(json!({"reasoning_effort": "low"})),
            Ok(json!({"reasoning": {"effort": "low"}})),
            Ok(json!({"output_config": {"effort": "low"}})),
            Ok(json!({"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}})),
        ]
    );
    let budget = json!({"generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}});
    let google = Protocol::GenerateContent;
    assert_eq!(added(google, "gemini-2.5-flash", &low), Ok(budget));
    let none = request(settings().reasoning_effort(ReasoningEffort::None));
    let refused = SettingError::UnsupportedValue("reasoning_effort", "none".to_owned());
    assert_eq!(
        added(Protocol::Messages, "m", &none).as_ref(),
        Err(&refused)
    );
    assert_eq!(added(google, "gemini-3-pro", &none), Err(refused));
}

#[test]
fn tool_choice_needs_its_tool() {
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let google = |choice: Value| Ok(json!({"toolConfig": {"functionCallingConfig": choice}}));
    let choice = |choice: Value| Ok(json!({"tool_choice": choice}));
    for (set, chat, responses, anthropic, gemini) in [
        (
            ToolChoice::None,
            json!("none"),
            json!("none"),
            json!({"type": "none"}),
            json!({"mode": "NONE"}),
        ),
        (
            ToolChoice::Required,
            json!("required"),
            json!("required"),
            json!({"type": "any"}),
            json!({"mode": "ANY"}),
        ),
        (
            ToolChoice::Tool("shell".into()),
            function("shell"),
            json!({"type": "function", "name": "shell"}),
            json!({"type": "tool", "name": "shell"}),
            json!({"mode": "ANY", "allowedFunctionNames": ["shell"]}),
        ),
    ] {
        assert_eq!(
            all(&with_tool(settings().tool_choice(set))),
            [
                choice(chat),
                choice(responses),
                choice(anthropic),
                google(gemini)
            ]
        );
    }
    let required = request(settings().tool_choice(ToolChoice::Required));
    assert!(
        all(&required)
            .iter()
            .all(|body| *body == Err(SettingError::NoTool(None)))
    );
    let other = with_tool(settings().tool_choice(ToolChoice::Tool("read".into())));
    let missing = SettingError::NoTool(Some("read".into()));
    assert!(
        all(&other)
            .iter()
            .all(|body| body.as_ref() == Err(&missing))
    );
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false})
}

#[test]
fn answer_schema_is_requested_natively() {
    let mut with = request(settings());
    with.output_schema = Some(OutputSchema::new(schema()));
    let format = json!({"type": "json_schema", "json_schema": {
        "name": "answer", "strict": true, "schema": schema(),
    }});
    let text = json!({"format": {
        "type": "json_schema", "name": "answer", "strict": true, "schema": schema(),
    }});
    let config = json!({"format": {"type": "json_schema", "schema": schema()}});
    let google = json!({"responseMimeType": "application/json", "responseJsonSchema": schema()});
    for (protocol, model, expected) in [
        (
            Protocol::ChatCompletions,
            "m",
            json!({"response_format": format}),
        ),
        (Protocol::Responses, "m", json!({"text": text})),
        (
            Protocol::Messages,
            "claude-sonnet-4-6",
            json!({"output_config": config}),
        ),
        (
            Protocol::GenerateContent,
            "gemini-2.5-flash",
            json!({"generationConfig": google}),
        ),
    ] {
        assert_eq!(added(protocol, model, &with), Ok(expected));
    }
}

#[test]
fn answer_schema_is_in_the_prompt_of_other_models() {
    let mut with = with_tool(settings());
    with.output_schema = Some(OutputSchema::new(schema()));
    for (protocol, model, place) in [
        (Protocol::Messages, "claude-3-5-haiku", "/system/0/text"),
        (
            Protocol::Messages,
            "claude-opus-4-20250514",
            "/system/0/text",
        ),
        (
            Protocol::GenerateContent,
            "gemini-2.5-flash",
            "/systemInstruction/parts/0/text",
        ),
    ] {
        let added = added(protocol, model, &with).unwrap();
        let prompt = added.pointer(place).and_then(Value::as_str).unwrap();
        assert!(prompt.contains(&schema().to_string()), "{prompt}");
        for native in ["output_config", "generationConfig"] {
            assert_eq!(added.get(native), None);
        }
    }
    with.output_schema = Some(OutputSchema::new(json!({"type": "array"})));
    let prompts = all(&with);
    assert!(prompts.iter().all(|body| {
        body.as_ref()
            .is_ok_and(|body| body.to_string().contains("JSON schema"))
    }));
}

#[test]
fn anthropic_caches_the_system_prompt_or_the_tools_and_the_conversation() {
    let ephemeral = json!({"type": "ephemeral"});
    let mut with = with_tool(settings());
    let body = |request: &ModelRequest| Protocol::Messages.body("m", request).unwrap();
    let places = ["/system/0", "/tools/0", "/messages/0/content/0"];
    let marked = |body: &Value| {
        places.map(|place| body.pointer(&format!("{place}/cache_control")) == Some(&ephemeral))
    };
    assert_eq!(marked(&body(&with)), [false, true, true]);
    with.system = Some("be brief".into());
    assert_eq!(marked(&body(&with)), [true, false, true]);
    with.settings = Arc::new(settings().prompt_cache(false));
    assert_eq!(marked(&body(&with)), [false; 3]);
    assert_eq!(body(&with)["system"], "be brief");
    let empty = ModelRequest::new(vec![Arc::new(Message::user(""))]);
    assert_eq!(marked(&body(&empty)), [false; 3]);
}

#[test]
fn provider_options_are_merged_into_the_request() {
    let options = settings()
        .temperature(0.5)
        .provider_option("generationConfig", json!({"topK": 3}))
        .provider_option("user", "me")
        .provider_option("store", Value::Null);
    let google = Protocol::GenerateContent
        .body("m", &request(options.clone()))
        .unwrap();
    assert_eq!(
        google["generationConfig"],
        json!({"temperature": 0.5, "topK": 3})
    );
    let responses = Protocol::Responses.body("m", &request(options)).unwrap();
    assert_eq!(
        (&responses["user"], responses.get("store")),
        (&json!("me"), None)
    );
    for field in ["stream", "model", "messages"] {
        let set = request(settings().provider_option(field, Value::Null));
        assert!(
            all(&set)
                .iter()
                .all(|body| *body == Err(SettingError::Reserved(field)))
        );
    }
}

#[test]
fn errors_name_the_setting_and_the_model() {
    let error = SettingError::Unsupported("seed").of_call("anthropic::claude-sonnet-4-6");
    assert_eq!(
        error.message,
        "anthropic::claude-sonnet-4-6 has no setting `seed`"
    );
    assert!(!error.kind.is_transient());
    let refused = all(&request(settings().temperature(f64::NAN)));
    assert!(
        refused
            .iter()
            .all(|body| *body == Err(SettingError::NotFinite("temperature")))
    );
}
