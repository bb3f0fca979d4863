//! `user.settings.*`: defaults of the user for sessions whose clients make no choice.

use allstop_jsonrpc::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::method::{MethodAnswer, MethodCx, failed, later, read};
use crate::stored_settings::{StoredSettings, UserDefaults};

#[derive(Deserialize)]
struct UserSettingsParams {
    #[serde(default)]
    settings: Map<String, Value>,
}

pub(super) fn begin(
    cx: &MethodCx<'_>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<MethodAnswer, RpcError> {
    let params: UserSettingsParams = read(params)?;
    let file = cx.server.settings().clone();
    match method {
        "user.settings.get" => Ok(later(async move {
            let settings = file.read().await?;
            Ok(json!({ "settings": described(settings.user)? }))
        })),
        // Each session reads the file when it is opened, so the server keeps no copy.
        "user.settings.reload" => Ok(later(async move {
            file.read().await?;
            Ok(json!({}))
        })),
        "user.settings.set" => Ok(later(async move {
            file.change(move |settings| set(settings, params.settings))
                .await?;
            // No other source of settings has precedence over the file.
            Ok(json!({ "shadowedKeys": [] }))
        })),
        unknown => Err(RpcError::method_not_found(unknown)),
    }
}

fn fields_of(user: UserDefaults) -> Result<Map<String, Value>, RpcError> {
    match serde_json::to_value(user).map_err(|error| failed(&error))? {
        Value::Object(fields) => Ok(fields),
        other => Err(RpcError::internal_error(format!("not an object: {other}"))),
    }
}

/// Describes all settings, with their defaults.
fn described(user: UserDefaults) -> Result<Value, RpcError> {
    let chosen = fields_of(user)?;
    let defaults = [
        ("enableConfigDiscovery", json!(false)),
        ("reasoningEffort", Value::Null),
    ];
    let all = defaults.into_iter().map(|(name, default)| {
        let value = chosen.get(name);
        let setting = json!({
            "value": value.unwrap_or(&default),
            "default": default,
            "isDefault": value.is_none(),
        });
        (name.to_owned(), setting)
    });
    Ok(Value::Object(all.collect()))
}

/// Sets these settings. Null restores the default.
fn set(stored: &mut StoredSettings, changes: Map<String, Value>) -> Result<(), RpcError> {
    let mut fields = fields_of(stored.user)?;
    for (name, value) in changes {
        // An absent field has the default, so an unknown name has to reach the check below.
        fields.insert(name, value);
    }
    let merged = serde_path_to_error::deserialize(Value::Object(fields));
    stored.user = merged.map_err(|error| {
        let (path, error) = (error.path().to_string(), error.inner().to_string());
        RpcError::invalid_params(format!("`settings.{path}`: {error}"))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_cleared_and_checked() {
        let mut stored = StoredSettings::default();
        let mut set = |changes: Value| {
            let Value::Object(changes) = changes else {
                panic!("{changes}");
            };
            let result = set(&mut stored, changes);
            (result.is_ok(), described(stored.user).expect("settings"))
        };
        let (is_set, all) = set(json!({ "enableConfigDiscovery": true, "reasoningEffort": "low" }));
        assert!(is_set, "{all}");
        let expected = json!({ "value": true, "default": false, "isDefault": false });
        assert_eq!(all["enableConfigDiscovery"], expected);
        let (_, all) = set(json!({ "enableConfigDiscovery": null }));
        let expected = json!({ "value": false, "default": false, "isDefault": true });
        assert_eq!(all["enableConfigDiscovery"], expected);
        assert_eq!(all["reasoningEffort"]["value"], "low");
        for wrong in [json!({ "theme": "dark" }), json!({ "reasoningEffort": 3 })] {
            assert!(!set(wrong).0);
        }
        assert_eq!(
            stored.user.reasoning_effort,
            Some(allstop_model::ReasoningEffort::Low)
        );
    }
}
