//! Tool names and call ids in a form that every provider accepts.
//!
//! A model can invent any tool name. The log keeps the invented name, up to a length limit. A request contains a valid
//! name instead, because a strict provider refuses the whole history if one name is invalid. The valid name depends
//! only on the invented name. Therefore the valid name is the same in each request, also in sessions of older versions.

use std::sync::Arc;

use crate::ids::CallId;
use crate::message::{Message, ToolCall, ToolResult};

/// Longest tool name that the strictest common provider accepts. Registered tools have the same limit.
const TOOL_NAME_LEN_MAX: usize = 64;

/// Longest call id that the strictest common provider accepts.
const CALL_ID_LEN_MAX: usize = 40;

/// Maximum size of a tool name in the log, in bytes. A valid name is at most half as long. Without this limit, a long
/// name would fill messages and receipts.
const STORED_NAME_BYTES_MAX: usize = 128;

/// Shortens a name that a model sent.
pub(super) fn bound_name(name: &mut Arc<str>) {
    if name.len() > STORED_NAME_BYTES_MAX {
        let end = name.floor_char_boundary(STORED_NAME_BYTES_MAX);
        *name = format!("{}…", &name[..end]).into();
    }
}

/// True if every provider accepts this id.
pub(super) fn is_valid_id(id: &CallId) -> bool {
    is_valid(id.as_str(), CALL_ID_LEN_MAX)
}

/// The message in a form that every provider accepts. Shares the message if it is already valid.
pub(super) fn for_request(message: &Arc<Message>) -> Arc<Message> {
    match &**message {
        Message::Assistant { text, tool_calls } if !tool_calls.iter().all(is_valid_call) => {
            let tool_calls = tool_calls.iter().map(|call| ToolCall {
                id: valid_id(&call.id),
                name: valid_name(&call.name),
                arguments: call.arguments.clone(),
            });
            Arc::new(Message::Assistant {
                text: Arc::clone(text),
                tool_calls: tool_calls.collect(),
            })
        }
        Message::Tool(result) if !is_valid_id(&result.call_id) => {
            Arc::new(Message::Tool(ToolResult {
                call_id: valid_id(&result.call_id),
                ..result.clone()
            }))
        }
        _ => Arc::clone(message),
    }
}

fn is_valid_call(call: &ToolCall) -> bool {
    is_valid_id(&call.id) && is_valid(&call.name, TOOL_NAME_LEN_MAX)
}

fn is_valid(name: &str, len_max: usize) -> bool {
    (1..=len_max).contains(&name.len()) && name.chars().all(is_valid_char)
}

fn is_valid_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn valid_name(name: &Arc<str>) -> Arc<str> {
    if is_valid(name, TOOL_NAME_LEN_MAX) {
        return Arc::clone(name);
    }
    let chars = name.chars().take(TOOL_NAME_LEN_MAX);
    let plain: String = chars
        .map(|c| if is_valid_char(c) { c } else { '_' })
        .collect();
    if plain.is_empty() {
        "unnamed".into()
    } else {
        plain.into()
    }
}

/// Creates a valid id from an invalid one. Hashes the whole text, so that ids with a common prefix stay different.
fn valid_id(id: &CallId) -> CallId {
    if is_valid_id(id) {
        return id.clone();
    }
    // The hash is FNV-1a. The ids of new calls are made valid when they arrive, so a model cannot choose ids that
    // collide here.
    let hash = id
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    CallId::from(format!("call_{hash:016x}"))
}
