//! Arguments of the tools. A `null` has the effect of an absent argument, because some models send all arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use allstop_core::MessageId;
use allstop_task::TaskMessage;
use allstop_task::model::{MessagePart, MessageSender, PartContent};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// Maximum size of a command with its folder and its variables, in bytes. Linux starts no program with an argument or a
/// variable of 128 KiB, and the arguments of ended commands stay in memory.
const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

/// Arguments of a command.
// The message of a command's task contains them as JSON.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandArguments {
    /// The command, as given to `sh -c`. It has no input.
    #[schemars(length(min = 1))]
    pub(crate) command: Arc<str>,
    /// Working directory; a relative path is relative to the folder of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<PathBuf>,
    /// Variables to add to the environment.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "value_or_null"
    )]
    pub(crate) env: BTreeMap<String, String>,
    /// Milliseconds after which the command with everything that it started is stopped; unlimited by default.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "milliseconds"
    )]
    #[schemars(range(min = 1))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `stop`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopArguments {
    /// Id of the command.
    pub(crate) id: String,
    /// True to kill at once, without time for the command to end by itself.
    #[serde(default, deserialize_with = "value_or_null")]
    pub(crate) force: bool,
}

/// Arguments of `preview`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewArguments {
    /// Id of the command; without it, all your running commands.
    #[serde(default)]
    pub(crate) id: Option<String>,
}

/// Arguments of `receipt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptArguments {
    /// Id of the command; without it, your command that ended last.
    #[serde(default)]
    pub(crate) id: Option<String>,
}

/// Reason why a command with valid types cannot run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongCommand {
    #[error("`command` is empty")]
    Empty,
    #[error("`{0}` contains a zero character")]
    ZeroCharacter(&'static str),
    #[error("`env` has the name {0:?}: a name is not empty and contains no `=`")]
    WrongName(String),
    #[error(
        "`command`, `cwd` and `env` have {0} bytes together, and the limit is {COMMAND_BYTES_MAX}: write a long text to \
         a file first, in parts"
    )]
    TooLong(usize),
}

impl CommandArguments {
    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), WrongCommand> {
        if self.command.trim().is_empty() {
            return Err(WrongCommand::Empty);
        }
        let cwd = self.cwd.as_ref().map(|cwd| cwd.as_os_str());
        let cwd = cwd.map_or(&[][..], std::ffi::OsStr::as_encoded_bytes);
        let env = self.env.iter();
        let texts = [("command", self.command.as_bytes()), ("cwd", cwd)].into_iter();
        let values =
            env.flat_map(|(name, value)| [("env", name.as_bytes()), ("env", value.as_bytes())]);
        // Each text has a byte that ends it.
        let mut size = 0;
        for (argument, text) in texts.chain(values) {
            if text.contains(&0) {
                return Err(WrongCommand::ZeroCharacter(argument));
            }
            size += text.len() + 1;
        }
        let mut names = self.env.keys();
        if let Some(wrong) = names.find(|name| name.is_empty() || name.contains('=')) {
            return Err(WrongCommand::WrongName(wrong.clone()));
        }
        if size > COMMAND_BYTES_MAX {
            return Err(WrongCommand::TooLong(size));
        }
        Ok(())
    }

    /// The message that starts the task of this command.
    pub(crate) fn to_message(&self) -> serde_json::Result<TaskMessage> {
        let content = PartContent::Data(serde_json::to_value(self)?);
        let id = MessageId::new(Ulid::generate().to_string());
        let mut message = TaskMessage::text(id, MessageSender::User, "");
        message.parts = vec![MessagePart {
            content,
            ..MessagePart::text("")
        }];
        Ok(message)
    }

    /// The arguments in a message; `None` if another program wrote the message.
    pub(crate) fn of_message(message: &TaskMessage) -> Option<Self> {
        message.parts.iter().find_map(|part| match &part.content {
            PartContent::Data(data) => Self::deserialize(data).ok(),
            _ => None,
        })
    }
}

/// Reads a value, or the default for `null`.
fn value_or_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a number of milliseconds. The error is for a model.
fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Milliseconds;

    impl Visitor<'_> for Milliseconds {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of milliseconds, 1 or more")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            if number == 0 {
                return Err(E::invalid_value(serde::de::Unexpected::Unsigned(0), &self));
            }
            Ok(Some(number))
        }
    }

    deserializer.deserialize_any(Milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(arguments: Value) -> Result<(), String> {
        let parsed = serde_json::from_value::<CommandArguments>(arguments);
        let parsed = parsed.map_err(|error| error.to_string())?;
        parsed.check().map_err(|error| error.to_string())
    }

    #[test]
    fn null_has_the_effect_of_an_absent_argument() {
        let nulls = json!({"command": "true", "cwd": null, "env": null, "timeout_ms": null});
        assert_eq!(checked(nulls), Ok(()));
        let stop = json!({"id": "1", "force": null});
        assert!(serde_json::from_value::<StopArguments>(stop).is_ok_and(|stop| !stop.force));
    }

    #[test]
    fn commands_that_cannot_run_are_refused() {
        let long = "x".repeat(COMMAND_BYTES_MAX);
        for (arguments, expected) in [
            (json!({"command": ""}), "`command` is empty"),
            (json!({"command": " \n"}), "`command` is empty"),
            (json!({"command": "a\0b"}), "`command` contains a zero"),
            (
                json!({"command": "true", "cwd": "\0"}),
                "`cwd` contains a zero",
            ),
            (
                json!({"command": "true", "env": {"A": "\0"}}),
                "`env` contains a zero",
            ),
            (
                json!({"command": "true", "env": {"": "x"}}),
                "the name \"\"",
            ),
            (
                json!({"command": "true", "env": {"A=B": "x"}}),
                "the name \"A=B\"",
            ),
            (
                json!({"command": "true", "env": {"A": long}}),
                "the limit is 131071",
            ),
            (json!({"command": "true", "timeout_ms": 0}), "1 or more"),
            (json!({"command": "true", "timeout_ms": -1}), "1 or more"),
            (
                json!({"command": "true", "timeout_ms": "5"}),
                "a whole number",
            ),
        ] {
            let refused = checked(arguments).expect_err(expected);
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
