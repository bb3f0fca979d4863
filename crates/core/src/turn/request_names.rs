//! Names of tools and ids of calls as every provider takes them.
//!
//! A model can invent any name for a tool. The log keeps what it said, within a bound; a request has a valid name in its
//! place, because strict providers refuse a whole history for one bad name, and would from then on. The mapping depends
//! on the name alone, so it is the same in each request, also for sessions that older versions have written.

use std::sync::Arc;

use crate::ids::CallId;
use crate::message::{Message, ToolCall, ToolResult};

/// Longest name of a tool: what the strictest of the usual providers accept, as for registered tools.
const TOOL_NAME_LEN_MAX: usize = 64;

/// Longest id of a call: what the strictest of the usual providers accept.
const CALL_ID_LEN_MAX: usize = 40;

/// Bytes that the log keeps of a tool's name. A name that a tool could have is half as long; a longer one is told in
/// messages and receipts, and is not to flood them.
const STORED_NAME_BYTES_MAX: usize = 128;

/// Bounds the name that a model has given, for all that keep it.
pub(super) fn bound_name(name: &mut Arc<str>) {
    if name.len() > STORED_NAME_BYTES_MAX {
        let end = name.floor_char_boundary(STORED_NAME_BYTES_MAX);
        *name = format!("{}…", &name[..end]).into();
    }
}

/// True if every provider takes this id.
pub(super) fn is_valid_id(id: &CallId) -> bool {
    is_valid(id.as_str(), CALL_ID_LEN_MAX)
}

/// The message as every provider takes it: shared, if it is valid as it is.
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

/// Two ids must not become one, so all of the id counts: its beginning would not do.
fn valid_id(id: &CallId) -> CallId {
    if is_valid_id(id) {
        return id.clone();
    }
    // FNV-1a. New ids are made valid as they come, so nobody chooses those that reach this to collide.
    let hash = id
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    CallId::from(format!("call_{hash:016x}"))
}
