//! Conversion of requests of A2A 0.3 to requests of the service.

use a2a::{
    A2AError, AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetTaskRequest, SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    TaskPushNotificationConfig,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::types::{
    File, Metadata, Part, SendConfiguration, TaskPushConfig, V03Message, V03PushConfig, V03Role,
    V03SendParams, V03TaskParams,
};

/// Key in the metadata of a data part whose content is not an object. Version 0.3 permits only objects. The official
/// SDKs wrap other content in an object, and mark it with this key.
pub(super) const WRAPPED_DATA: &str = "data_part_compat";
/// Field of the object that wraps the content.
pub(super) const WRAPPED_VALUE: &str = "value";

/// Id of a webhook configuration if the client has chosen no id.
const DEFAULT_CONFIG: &str = "default";

/// Fields with the secrets of a webhook.
const SECRETS: [&str; 2] = [
    "pushNotificationConfig.token",
    "pushNotificationConfig.authentication",
];

/// Parses the parameters of a request.
///
/// # Errors
/// Returns an error that names the field that cannot be read. The error contains no secret of a webhook.
fn parse<T: DeserializeOwned>(params: Value) -> Result<T, A2AError> {
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        let is_secret = SECRETS.iter().any(|secret| path.contains(secret));
        A2AError::invalid_params(if is_secret {
            format!("invalid params: {path} has the wrong type")
        } else {
            format!("invalid params: {error}")
        })
    })
}

pub(super) fn send_message(params: Value) -> Result<SendMessageRequest, A2AError> {
    let params: V03SendParams = parse(params)?;
    Ok(SendMessageRequest {
        message: message(params.message)?,
        configuration: params.configuration.map(configuration),
        metadata: params.metadata,
        tenant: None,
    })
}

pub(super) fn get_task(params: Value) -> Result<GetTaskRequest, A2AError> {
    let params: V03TaskParams = parse(params)?;
    Ok(GetTaskRequest {
        id: params.id,
        history_length: history_length(params.history_length),
        tenant: None,
    })
}

pub(super) fn cancel_task(params: Value) -> Result<CancelTaskRequest, A2AError> {
    let params: V03TaskParams = parse(params)?;
    Ok(CancelTaskRequest {
        id: params.id,
        metadata: params.metadata,
        tenant: None,
    })
}

pub(super) fn subscribe(params: Value) -> Result<SubscribeToTaskRequest, A2AError> {
    let params: V03TaskParams = parse(params)?;
    Ok(SubscribeToTaskRequest {
        id: params.id,
        tenant: None,
    })
}

pub(super) fn set_push_config(params: Value) -> Result<TaskPushNotificationConfig, A2AError> {
    let params: TaskPushConfig = parse(params)?;
    Ok(TaskPushNotificationConfig {
        task_id: params.task_id,
        ..push_config(params.push_notification_config)
    })
}

/// Returns the id of a task and, if the request has it, of a webhook configuration.
pub(super) fn push_config_ids(params: Value) -> Result<(String, Option<String>), A2AError> {
    let params: V03TaskParams = parse(params)?;
    Ok((params.id, params.push_notification_config_id))
}

pub(super) fn delete_push_config(
    params: Value,
) -> Result<DeleteTaskPushNotificationConfigRequest, A2AError> {
    let (task_id, id) = push_config_ids(params)?;
    let id = id.ok_or_else(|| {
        A2AError::invalid_params("invalid params: missing field `pushNotificationConfigId`")
    })?;
    Ok(DeleteTaskPushNotificationConfigRequest {
        task_id,
        id,
        tenant: None,
    })
}

fn message(message: V03Message) -> Result<a2a::Message, A2AError> {
    if let V03Role::Agent = message.role {
        let text = "invalid params: message.role must be `user`";
        return Err(A2AError::invalid_params(text));
    }
    let parts = message.parts.into_iter().enumerate();
    let parts = parts.map(|(index, part)| {
        self::part(part).map_err(|reason| {
            A2AError::invalid_params(format!("invalid params: message.parts[{index}]: {reason}"))
        })
    });
    Ok(a2a::Message {
        message_id: message.message_id,
        context_id: message.context_id.filter(|id| !id.is_empty()),
        task_id: message.task_id.filter(|id| !id.is_empty()),
        role: a2a::Role::User,
        parts: parts.collect::<Result<_, _>>()?,
        metadata: message.metadata,
        extensions: message.extensions,
        reference_task_ids: message.reference_task_ids,
    })
}

fn part(part: Part) -> Result<a2a::Part, &'static str> {
    Ok(match part {
        Part::Text { text, metadata } => a2a::Part {
            content: a2a::PartContent::Text(text),
            filename: None,
            media_type: None,
            metadata,
        },
        Part::Data { data, metadata } => {
            let (data, metadata) = unwrapped(Value::Object(data), metadata);
            a2a::Part {
                content: a2a::PartContent::Data(data),
                filename: None,
                media_type: None,
                metadata,
            }
        }
        Part::File { file, metadata } => {
            let File {
                bytes,
                uri,
                name,
                mime_type,
            } = file;
            let content = match (bytes, uri) {
                (Some(bytes), None) => {
                    let bytes = STANDARD.decode(bytes);
                    a2a::PartContent::Raw(bytes.map_err(|_| "file.bytes is not base64")?)
                }
                (None, Some(uri)) => a2a::PartContent::Url(uri),
                _ => return Err("a file needs either `bytes` or `uri`"),
            };
            a2a::Part {
                content,
                filename: name,
                media_type: mime_type,
                metadata,
            }
        }
    })
}

/// Returns the content of an object that wraps it, without the mark in the metadata.
fn unwrapped(mut data: Value, mut metadata: Option<Metadata>) -> (Value, Option<Metadata>) {
    if let Some(fields) = &mut metadata
        && fields.get(WRAPPED_DATA) == Some(&Value::Bool(true))
        && let Some(value) = data.get_mut(WRAPPED_VALUE)
    {
        let value = value.take();
        fields.remove(WRAPPED_DATA);
        return (value, metadata.filter(|fields| !fields.is_empty()));
    }
    (data, metadata)
}

fn configuration(configuration: SendConfiguration) -> SendMessageConfiguration {
    SendMessageConfiguration {
        accepted_output_modes: configuration.accepted_output_modes,
        task_push_notification_config: configuration.push_notification_config.map(push_config),
        history_length: history_length(configuration.history_length),
        return_immediately: configuration.blocking.map(|blocking| !blocking),
    }
}

/// In version 0.3, the length 0 means the whole history.
fn history_length(length: Option<u32>) -> Option<i32> {
    let length = length.filter(|length| *length > 0)?;
    Some(i32::try_from(length).unwrap_or(i32::MAX))
}

/// Converts a webhook configuration. Of several authentication schemes, the client prefers the first. In version 0.3, a
/// configuration without an id replaces an earlier one without an id.
fn push_config(config: V03PushConfig) -> TaskPushNotificationConfig {
    let authentication = config.authentication.and_then(|authentication| {
        let scheme = authentication.schemes.into_iter().next();
        let credentials = authentication.credentials;
        (scheme.is_some() || credentials.is_some()).then(|| AuthenticationInfo {
            scheme: scheme.unwrap_or_default(),
            credentials,
        })
    });
    TaskPushNotificationConfig {
        url: config.url,
        id: config.id.or_else(|| Some(DEFAULT_CONFIG.to_owned())),
        task_id: String::new(),
        token: config.token,
        authentication,
        tenant: None,
    }
}

#[cfg(test)]
#[path = "from_v0_3_tests.rs"]
mod tests;
