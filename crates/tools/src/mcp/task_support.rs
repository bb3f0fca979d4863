//! Tools that must be called as a task, since revision 2025-11-25. Their list has the field `execution`, which the
//! protocol library drops. Therefore the list is changed before the library parses it: each of these tools receives a
//! mark in its metadata, which the library keeps.

use rmcp::model::Tool;
use serde_json::{Value, json};

/// Field of `execution`. A message without this word is no list with such a tool.
const FIELD: &str = "taskSupport";

/// Value of the field for a tool that must be called as a task.
const REQUIRED: &str = "required";

/// Key of the mark. A server gains nothing from a tool with this key.
const MARK: &str = "io.allstop/task";

/// Returns the message that replaces this list of tools; `None` if no tool in the message must be called as a task.
/// Check the depth of the message first.
pub(super) fn replacement(message: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(message).ok()?;
    if !text.contains(FIELD) {
        return None;
    }
    let mut message: Value = serde_json::from_str(text).ok()?;
    let tools = message.pointer_mut("/result/tools")?.as_array_mut()?;
    let mut is_changed = false;
    for tool in tools {
        let support = tool.get("execution").and_then(|how| how.get(FIELD));
        if support.and_then(Value::as_str) != Some(REQUIRED) {
            continue;
        }
        let tool = tool.as_object_mut()?;
        let meta = tool.entry("_meta").or_insert_with(|| json!({}));
        meta.as_object_mut()?.insert(MARK.to_owned(), true.into());
        is_changed = true;
    }
    is_changed.then(|| message.to_string())
}

/// True if this tool must be called as a task.
pub(super) fn needs_task(tool: &Tool) -> bool {
    let meta = tool.meta.as_ref();
    meta.is_some_and(|meta| meta.contains_key(MARK))
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage, ServerResult};

    use super::*;

    #[test]
    fn only_a_tool_that_requires_a_task_is_marked() {
        let tool = |name: &str, execution: Value| json!({"name": name, "inputSchema": {"type": "object"}, "execution": execution});
        let tools = [
            tool("required", json!({FIELD: "required"})),
            tool("optional", json!({FIELD: "optional"})),
            tool("none", Value::Null),
        ];
        let list = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}});
        let replaced = replacement(list.to_string().as_bytes()).unwrap();
        let parsed: ServerJsonRpcMessage = serde_json::from_str(&replaced).unwrap();
        let JsonRpcMessage::Response(response) = parsed else {
            panic!("{parsed:?}");
        };
        let ServerResult::ListToolsResult(listed) = response.result else {
            panic!("{:?}", response.result);
        };
        let marked: Vec<_> = listed
            .tools
            .iter()
            .filter(|tool| needs_task(tool))
            .collect();
        assert_eq!(marked.len(), 1);
        assert_eq!(marked[0].name, "required");
        let plain = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool("a", json!({FIELD: "optional"}))]}});
        assert_eq!(replacement(plain.to_string().as_bytes()), None);
        assert_eq!(replacement(br#"{"result":{"text":"taskSupport"}}"#), None);
    }
}
