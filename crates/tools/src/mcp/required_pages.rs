//! Pages that a person must visit before a server accepts a call: the error `-32042` of MCP 2025-11-25.

use rmcp::model::{ElicitRequestParams, ElicitationAction, ErrorData};
use serde::Deserialize as _;
use serde_json::Value;

use super::elicitation::{QUESTIONS_WAITING_MAX, ask, is_usable_address};
use crate::server_question::shortened;
use crate::tool::{ToolError, ToolInvocation};

/// Code of the error.
const URL_ELICITATION_REQUIRED: i32 = -32_042;

/// The visits that a server requires.
#[derive(Debug)]
pub(super) struct RequiredPages {
    message: String,
    pages: Vec<ElicitRequestParams>,
}

impl RequiredPages {
    /// Reads the visits from an error; `None` if the error names no page with a usable address.
    pub(super) fn of(error: &ErrorData) -> Option<Self> {
        if error.code.0 != URL_ELICITATION_REQUIRED {
            return None;
        }
        let listed = error.data.as_ref()?.get("elicitations")?;
        let listed = listed.as_array().map_or(&[][..], Vec::as_slice);
        let pages = listed.iter().filter_map(page);
        let pages: Vec<_> = pages.take(QUESTIONS_WAITING_MAX).collect();
        (!pages.is_empty()).then(|| Self {
            message: shortened(&error.message).to_owned(),
            pages,
        })
    }

    /// Asks the person to visit the pages, one after the other. Returns true if the person has visited all of them.
    ///
    /// # Cancel safety
    /// Dropping the future removes the open question.
    pub(super) async fn visit(&self, server: &str, invocation: &ToolInvocation) -> bool {
        for page in &self.pages {
            let answer = ask(page, server, invocation).await;
            if answer.action != ElicitationAction::Accept {
                return false;
            }
        }
        true
    }

    /// The error of a call without these visits.
    pub(super) fn error(&self, server: &str) -> ToolError {
        let addresses: Vec<_> = self.pages.iter().filter_map(address).collect();
        ToolError::new(format!(
            "the server `{server}` needs a visit to a web page before this call: {}. The user has to open {}; then \
             repeat the call",
            self.message,
            addresses.join(" and ")
        ))
    }
}

fn page(listed: &Value) -> Option<ElicitRequestParams> {
    let page = ElicitRequestParams::deserialize(listed).ok()?;
    let is_usable = address(&page).is_some_and(is_usable_address);
    is_usable.then_some(page)
}

fn address(page: &ElicitRequestParams) -> Option<&str> {
    match page {
        ElicitRequestParams::UrlElicitationParams { url, .. } => Some(url),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;
    use serde_json::json;

    use super::*;

    fn error(code: i32, data: Value) -> ErrorData {
        ErrorData::new(ErrorCode(code), "log in first", Some(data))
    }

    #[test]
    fn error_names_the_usable_pages() {
        let page = |url| json!({"mode": "url", "message": "m", "url": url, "elicitationId": "1"});
        let form = json!({"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}});
        let listed = json!([
            page("https://a.example/?x=1"),
            form,
            page("file:///etc"),
            7,
            page("http://b.example/")
        ]);
        let pages = RequiredPages::of(&error(-32_042, json!({"elicitations": listed}))).unwrap();
        assert_eq!(
            pages.error("s").to_string(),
            "the server `s` needs a visit to a web page before this call: log in first. The user has to open \
             https://a.example/?x=1 and http://b.example/; then repeat the call"
        );
    }

    #[test]
    fn other_errors_require_no_page() {
        let page = json!({"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": "1"});
        for (code, data) in [
            (-32_042, json!(null)),
            (-32_042, json!({"elicitations": 7})),
            (
                -32_042,
                json!({"elicitations": [{"mode": "url", "url": "javascript:x"}]}),
            ),
            (-32_602, json!({"elicitations": [page]})),
        ] {
            assert!(RequiredPages::of(&error(code, data)).is_none());
        }
    }
}
