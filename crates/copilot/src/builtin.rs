//! The built-in tools, with the names and arguments that users of the Copilot SDKs expect.

use std::sync::Arc;

use allstop_tools::{EffectPreview, Tool, ToolError, ToolInvocation, ToolOutput, ToolSpec, names};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

/// Converts arguments of the SDKs' tool to arguments of the equivalent Allstop tool.
type Conversion = fn(&Map<String, Value>) -> Value;

/// A built-in tool under another name.
#[derive(Debug)]
struct RenamedTool {
    spec: ToolSpec,
    inner: Arc<dyn Tool>,
    convert: Conversion,
}

/// Returns the tool with the name and arguments that the SDKs' users know. Other tools are returned unchanged.
pub(crate) fn renamed(tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
    let string = |text: &str| json!({ "type": "string", "description": text });
    let (name, properties, required, convert): (_, _, &[&str], Conversion) = match &*tool
        .spec()
        .name
    {
        names::SHELL => (
            "bash",
            json!({
                "command": string("The command, as given to `sh -c`."),
                "description": string("What the command does, in a few words."),
                "timeout": { "type": "number", "exclusiveMinimum": 0, "description": "Seconds after which it is stopped." },
                "background": { "type": "boolean", "description": "True to return at once and run it in the background." },
            }),
            &["command"],
            bash,
        ),
        names::READ => (
            "view",
            json!({
                "path": string("The file, or the folder to list."),
                "view_range": {
                    "type": "array",
                    "items": { "type": "integer" },
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "First and last line, from 1; -1 as the last one is the end.",
                },
            }),
            &["path"],
            view,
        ),
        names::WRITE => (
            "create",
            json!({ "path": string("The file."), "file_text": string("Its whole content.") }),
            &["path", "file_text"],
            create,
        ),
        names::EDIT => (
            names::EDIT,
            json!({
                "path": string("The file."),
                "old_str": string("Text to replace; it occurs once."),
                "new_str": string("Text in its place."),
            }),
            &["path", "old_str", "new_str"],
            edit,
        ),
        names::AGENT => return task_tool(tool),
        _ => return tool,
    };
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
    });
    let mut spec = tool.spec().clone();
    spec.name_in_rules = Some(spec.name);
    spec.name = name.into();
    spec.input_schema = Arc::new(schema);
    Arc::new(RenamedTool {
        spec,
        inner: tool,
        convert,
    })
}

/// Name of the tool for sub-agents.
pub(crate) const TASK: &str = "task";

/// Returns the tool for sub-agents.
fn task_tool(tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
    let mut spec = tool.spec().clone();
    let kinds = &spec.input_schema["properties"]["agent"]["enum"];
    let mut schema = json!({
        "type": "object",
        "properties": {
            "description": { "type": "string", "description": "The task in a few words." },
            "prompt": { "type": "string", "minLength": 1, "description": "The task." },
            "mode": {
                "type": "string",
                "enum": ["sync", "background"],
                "description": "`background` to return at once and let the agent run in the background.",
            },
        },
        "required": ["prompt"],
    });
    if kinds.is_array() {
        let description = "The agent; without it, one like you.";
        schema["properties"]["agent_type"] =
            json!({ "type": "string", "enum": kinds, "description": description });
    }
    spec.name_in_rules = Some(spec.name);
    spec.name = TASK.into();
    spec.description = spec.description.replace("`agent`", "`agent_type`").into();
    spec.input_schema = Arc::new(schema);
    Arc::new(RenamedTool {
        spec,
        inner: tool,
        convert: task,
    })
}

fn task(arguments: &Map<String, Value>) -> Value {
    let names = [("prompt", "prompt"), ("agent_type", "agent")];
    let mut ours = taken(arguments, &names);
    if arguments
        .get("mode")
        .is_some_and(|mode| mode == "background")
    {
        ours.insert("background".to_owned(), true.into());
    }
    Value::Object(ours)
}

fn taken(arguments: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let present = names.iter().filter_map(|(theirs, ours)| {
        let value = arguments.get(*theirs).filter(|value| !value.is_null())?;
        Some(((*ours).to_owned(), value.clone()))
    });
    present.collect()
}

fn bash(arguments: &Map<String, Value>) -> Value {
    let names = [
        ("command", "command"),
        ("timeout", "timeout_s"),
        ("background", "background"),
    ];
    Value::Object(taken(arguments, &names))
}

fn view(arguments: &Map<String, Value>) -> Value {
    let mut ours = taken(arguments, &[("path", "path")]);
    let range = arguments.get("view_range").and_then(Value::as_array);
    let line = |index: usize| range.and_then(|range| range.get(index)?.as_i64());
    if let Some(first) = line(0) {
        let first = first.max(1);
        ours.insert("offset".to_owned(), first.into());
        if let Some(last) = line(1).filter(|last| *last >= first) {
            ours.insert("limit".to_owned(), (last - first + 1).into());
        }
    }
    Value::Object(ours)
}

fn create(arguments: &Map<String, Value>) -> Value {
    Value::Object(taken(
        arguments,
        &[("path", "path"), ("file_text", "content")],
    ))
}

fn edit(arguments: &Map<String, Value>) -> Value {
    let names = [("path", "path"), ("old_str", "old"), ("new_str", "new")];
    Value::Object(taken(arguments, &names))
}

impl RenamedTool {
    fn converted(&self, invocation: ToolInvocation) -> ToolInvocation {
        let arguments = match &*invocation.arguments {
            Value::Object(arguments) => (self.convert)(arguments),
            other => other.clone(),
        };
        ToolInvocation {
            arguments: Arc::new(arguments),
            ..invocation
        }
    }
}

impl Tool for RenamedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, invocation: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        self.inner.call(self.converted(invocation))
    }

    fn preview(&self, invocation: ToolInvocation) -> BoxFuture<'_, Option<EffectPreview>> {
        self.inner.preview(self.converted(invocation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("no object: {other}"),
        }
    }

    #[test]
    fn arguments_are_converted() {
        let cases = [
            (
                bash as Conversion,
                json!({"command": "ls", "description": "list", "timeout": 3}),
                json!({"command": "ls", "timeout_s": 3}),
            ),
            (view, json!({"path": "a"}), json!({"path": "a"})),
            (
                view,
                json!({"path": "a", "view_range": [3, 5]}),
                json!({"path": "a", "offset": 3, "limit": 3}),
            ),
            (
                view,
                json!({"path": "a", "view_range": [3, -1]}),
                json!({"path": "a", "offset": 3}),
            ),
            (
                create,
                json!({"path": "a", "file_text": "x"}),
                json!({"path": "a", "content": "x"}),
            ),
            (
                edit,
                json!({"path": "a", "old_str": "x", "new_str": "y"}),
                json!({"path": "a", "old": "x", "new": "y"}),
            ),
            (
                task,
                json!({"agent_type": "explore", "name": "n", "prompt": "x", "mode": "background"}),
                json!({"prompt": "x", "agent": "explore", "background": true}),
            ),
            (
                task,
                json!({"prompt": "x", "mode": "sync"}),
                json!({"prompt": "x"}),
            ),
        ];
        for (convert, theirs, ours) in cases {
            assert_eq!(convert(&map(theirs)), ours);
        }
    }
}
