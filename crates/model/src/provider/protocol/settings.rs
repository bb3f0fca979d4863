//! Settings of requests, as far as all protocols treat them equally: checks before a request is sent, and the further
//! fields of the request.

use serde_json::{Map, Value};

use crate::{ModelError, ModelErrorKind, ModelRequest, RequestSettings, ToolChoice};

/// Fields of a request that an option may not replace, because the answer would not be the answer to the conversation, or
/// could not be read.
const RESERVED: [&str; 5] = ["model", "messages", "input", "contents", "stream"];

/// Reason why a request with these settings is not sent.
#[derive(Debug, PartialEq)]
pub(in crate::provider) enum SettingError {
    /// The protocol lacks the setting.
    Unsupported(&'static str),
    /// The protocol has the setting, but not this value.
    UnsupportedValue(&'static str, String),
    /// A number that is not finite.
    NotFinite(&'static str),
    /// The request declares no tool, or not the chosen tool.
    NoTool(Option<String>),
    /// An option would replace a field that Allstop sets.
    Reserved(&'static str),
}

impl SettingError {
    /// The error of the call. `model` is the name of the model with its provider.
    pub(in crate::provider) fn of_call(self, model: &str) -> ModelError {
        let (message, hint) = match self {
            Self::Unsupported(setting) => (
                format!("{model} has no setting `{setting}`"),
                "remove the setting, or use a model of another provider",
            ),
            Self::UnsupportedValue(setting, value) => (
                format!("{model} has no `{setting}` of `{value}`"),
                "use another value, or remove the setting",
            ),
            Self::NotFinite(setting) => (
                format!("the setting `{setting}` is not a finite number"),
                "use a number",
            ),
            Self::NoTool(Some(name)) => (
                format!("the setting `tool_choice` names the tool `{name}`, which the agent lacks"),
                "use the name of a tool of the agent",
            ),
            Self::NoTool(None) => (
                "the setting `tool_choice` requires a call, but the agent has no tools".to_owned(),
                "add a tool, or remove the setting",
            ),
            Self::Reserved(field) => (
                format!("`provider_options` cannot replace the field `{field}` of a request"),
                "remove the field from the options",
            ),
        };
        ModelError::new(ModelErrorKind::Invalid, message).with_hint(hint)
    }
}

/// Checks that need no knowledge of the protocol.
pub(super) fn check(request: &ModelRequest) -> Result<(), SettingError> {
    let settings = &request.settings;
    for (name, value) in [
        ("temperature", settings.temperature),
        ("top_p", settings.top_p),
        ("presence_penalty", settings.presence_penalty),
        ("frequency_penalty", settings.frequency_penalty),
    ] {
        if value.is_some_and(|value| !value.is_finite()) {
            return Err(SettingError::NotFinite(name));
        }
    }
    let mut tools = request.tools.iter();
    match &settings.tool_choice {
        ToolChoice::Required if request.tools.is_empty() => Err(SettingError::NoTool(None)),
        ToolChoice::Tool(name) if !tools.any(|tool| *tool.name == **name) => {
            Err(SettingError::NoTool(Some(name.clone())))
        }
        _ => Ok(()),
    }
}

/// Fails if a setting that the protocol lacks is set.
pub(super) fn refuse(
    settings: impl IntoIterator<Item = (&'static str, bool)>,
) -> Result<(), SettingError> {
    match settings.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(SettingError::Unsupported(name)),
        None => Ok(()),
    }
}

/// Sets a field of a request, if the setting is set.
pub(super) fn put(body: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[field] = value.into();
    }
}

/// The texts that end the answer; `None` if there are none.
pub(super) fn stop_texts(settings: &RequestSettings) -> Option<Value> {
    let texts = &settings.stop_sequences;
    (!texts.is_empty()).then(|| texts.as_slice().into())
}

/// Merges the options of the provider into the body of a request.
pub(super) fn merge_options(
    body: &mut Value,
    options: &Map<String, Value>,
) -> Result<(), SettingError> {
    if let Some(field) = RESERVED.iter().find(|field| options.contains_key(**field)) {
        return Err(SettingError::Reserved(field));
    }
    merge(body, options);
    Ok(())
}

fn merge(into: &mut Value, options: &Map<String, Value>) {
    let Value::Object(fields) = into else { return };
    for (name, value) in options {
        match (fields.get_mut(name), value) {
            (_, Value::Null) => drop(fields.shift_remove(name)),
            (Some(field @ Value::Object(_)), Value::Object(more)) => merge(field, more),
            (_, value) => drop(fields.insert(name.clone(), value.clone())),
        }
    }
}
