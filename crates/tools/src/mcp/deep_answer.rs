//! Answers of an MCP server that are nested too deep to be parsed.
//!
//! The protocol library ignores a message that it cannot parse, so the request would wait for an answer that was
//! already received. Therefore such an answer is replaced by an error with the same id.

use allstop_core::json_text::nesting_depth;
use rmcp::model::{ErrorCode, ErrorData};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::task_support;

/// Maximum depth of arrays and objects that `serde_json` parses. Its recursion has this limit, so that no text can
/// overflow the stack.
const DEPTH_MAX: usize = 127;

/// Key in the data of an error that replaces an answer. A server gains nothing from an error with this key.
const MARK: &str = "io.allstop/unreadable";

/// The beginning of an answer. The parser skips all other fields, at any depth, without recursion.
#[derive(Deserialize)]
struct AnswerHead {
    id: Value,
    method: Option<IgnoredAny>,
}

/// Returns the message that replaces this message before the protocol library parses it, if any. Check the message for
/// reserved keys first.
pub(super) fn replacement(message: &[u8]) -> Option<String> {
    unreadable(message).or_else(|| task_support::replacement(message))
}

/// Returns the message that replaces this answer; `None` if the message is no answer or can be parsed.
fn unreadable(message: &[u8]) -> Option<String> {
    if nesting_depth(message) <= DEPTH_MAX {
        return None;
    }
    let head: AnswerHead = serde_json::from_slice(message).ok()?;
    if head.method.is_some() {
        return None;
    }
    let why = format!("it is nested more than {DEPTH_MAX} levels deep");
    let error = ErrorData::new(ErrorCode::PARSE_ERROR, why, Some(json!({ MARK: true })));
    Some(json!({"jsonrpc": "2.0", "id": head.id, "error": error}).to_string())
}

/// True if this error replaces an answer.
pub(super) fn is_replacement(error: &ErrorData) -> bool {
    let data = error.data.as_ref();
    data.is_some_and(|data| data.get(MARK).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    #[test]
    fn limit_is_the_limit_of_the_parser() {
        for (levels, is_read) in [(DEPTH_MAX, true), (DEPTH_MAX + 1, false)] {
            let text = nested(levels);
            assert_eq!(nesting_depth(text.as_bytes()), levels);
            assert_eq!(serde_json::from_str::<Value>(&text).is_ok(), is_read);
        }
        assert_eq!(nesting_depth(br#"{"a[[[\"[[":"{{"}"#), 1);
    }

    #[test]
    fn only_a_deep_answer_is_replaced() {
        let answer = |id: &str, deep: &str| format!(r#"{{"result":{deep},"id":{id}}}"#);
        assert_eq!(replacement(answer("7", "[]").as_bytes()), None);
        let deep = nested(1_000_000);
        for id in ["7", r#""x""#] {
            let replaced = replacement(answer(id, &deep).as_bytes()).unwrap();
            assert!(replaced.contains(&format!(r#""id":{id}"#)), "{replaced}");
        }
        assert_eq!(replacement(answer(&deep, "1").as_bytes()), None);
        let request = format!(r#"{{"id":7,"method":"ping","params":{deep}}}"#);
        assert_eq!(replacement(request.as_bytes()), None);
        assert_eq!(replacement(deep.as_bytes()), None);
    }
}
