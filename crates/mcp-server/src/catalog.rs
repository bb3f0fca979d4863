//! The tools of the server, with their schemas.

use std::sync::Arc;

use allstop_tools::schema::schema_of;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde_json::Value;

use crate::arguments::{CommandArguments, PreviewArguments, ReceiptArguments, StopArguments};
use crate::report::{CommandReport, PreviewReport};

pub(crate) const EXEC: &str = "exec";
pub(crate) const BACKGROUND: &str = "background";
pub(crate) const STOP: &str = "stop";
pub(crate) const PREVIEW: &str = "preview";
pub(crate) const RECEIPT: &str = "receipt";

/// Text for the model of the client.
pub(crate) const INSTRUCTIONS: &str = "Runs shell commands so that nothing of them survives a stop. `exec` waits for \
    a command; processes that it leaves are stopped. `background` starts a server or a watcher and returns its id. \
    `preview` lists the running work, `stop` ends it, and `receipt` returns the exit, the output and the evidence that \
    nothing is left.";

/// The tools.
pub(crate) fn tools() -> Vec<Tool> {
    let run = || {
        ToolAnnotations::new()
            .read_only(false)
            .destructive(true)
            .open_world(true)
    };
    let look = || ToolAnnotations::new().read_only(true).open_world(false);
    vec![
        tool::<CommandArguments, CommandReport>(
            EXEC,
            "Runs a command with `sh -c` (POSIX, no bash syntax: use `bash -c '…'`) and waits for its exit. Returns its exit code, its output and a receipt. \
             Processes that still run after the exit are stopped. A cancelled request stops the command with \
             everything that it started.",
            run(),
        ),
        tool::<CommandArguments, CommandReport>(
            BACKGROUND,
            "Starts a command with `sh -c` (POSIX), such as a server or a watcher, and returns its id at once. It runs until \
             it exits, `stop` ends it, `timeout_ms` has passed, or this server ends.",
            run(),
        ),
        tool::<StopArguments, CommandReport>(
            STOP,
            "Stops a command with everything that it started: first SIGTERM, then SIGKILL. Returns the receipt: the \
             ended work, the remaining work, and the evidence. For an ended command, returns its receipt.",
            ToolAnnotations::new()
                .read_only(false)
                .destructive(true)
                .idempotent(true)
                .open_world(false),
        ),
        tool::<PreviewArguments, PreviewReport>(
            PREVIEW,
            "Lists the work that `stop` would end now, and the last output, without stopping anything: of one \
             command, or of all your running commands.",
            look(),
        ),
        tool::<ReceiptArguments, CommandReport>(
            RECEIPT,
            "Returns the exit, the output and the receipt of an ended command. Without an id: of the command that ended \
             last; the text also names earlier ones.",
            look(),
        ),
    ]
}

fn tool<A: JsonSchema, R: JsonSchema>(
    name: &'static str,
    description: &'static str,
    annotations: ToolAnnotations,
) -> Tool {
    let mut tool = Tool::new(name, description, object_schema::<A>());
    let mut output = schema_of::<R>().as_ref().clone();
    if name != EXEC {
        // The reports of all tools are alike, and the list of the tools is a part of the context of each model.
        remove_descriptions(&mut output);
    }
    tool.output_schema = output.as_object().cloned().map(Arc::new);
    tool.annotations = Some(annotations);
    tool
}

/// Schema of a struct, which is a JSON object.
fn object_schema<T: JsonSchema>() -> Arc<JsonObject> {
    let schema = schema_of::<T>();
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

/// Removes the descriptions of a schema and of its parts. No field of a report has this name.
fn remove_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.shift_remove("description");
            fields.values_mut().for_each(remove_descriptions);
        }
        Value::Array(parts) => parts.iter_mut().for_each(remove_descriptions),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_schemas_of_objects() {
        for tool in tools() {
            let output = tool.output_schema.expect("an output schema");
            for schema in [&tool.input_schema, &output] {
                assert_eq!(schema["type"], "object", "{}", tool.name);
                assert!(schema.contains_key("properties"), "{}", tool.name);
            }
        }
    }
}
