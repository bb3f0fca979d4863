//! Answers to requests that the MCP library has no type for: unknown methods, and known methods with parameters of wrong
//! types.

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, ConstString as _, CustomRequest, ErrorCode,
    ErrorData, ListToolsRequestMethod, PaginatedRequestParams,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The error for such a request. A client that gets "method not found" for a known method would not search for the
/// fault in its parameters.
pub(crate) fn wrong_request(request: CustomRequest) -> ErrorData {
    let CustomRequest { method, params, .. } = request;
    let fault = match method.as_str() {
        CallToolRequestMethod::VALUE => fault_of::<CallToolRequestParams>(params),
        ListToolsRequestMethod::VALUE => fault_of::<Option<PaginatedRequestParams>>(params),
        _ => return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
    };
    ErrorData::invalid_params(format!("wrong parameters of {method}: {fault}"), None)
}

/// The reason why these are no parameters of this type.
fn fault_of<P: DeserializeOwned>(params: Option<Value>) -> String {
    let parsed = serde_json::from_value::<P>(params.unwrap_or_default());
    match parsed {
        Err(error) => error.to_string(),
        // The parser of the type also accepts an array of the fields.
        Ok(_) => "expected an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_methods_have_wrong_parameters() {
        for (method, params, code, text) in [
            (
                "tools/call",
                json!({"name": "exec", "arguments": []}),
                -32602,
                "map",
            ),
            ("tools/call", json!({"arguments": {}}), -32602, "`name`"),
            ("tools/call", json!(null), -32602, "wrong parameters"),
            (
                "tools/call",
                json!({"name": "exec", "_meta": 7}),
                -32602,
                "map",
            ),
            ("tools/list", json!({"cursor": 7}), -32602, "string"),
            ("tools/list", json!([]), -32602, "wrong parameters"),
            ("tools/unknown", json!({}), -32601, "tools/unknown"),
        ] {
            let error = wrong_request(CustomRequest::new(method, Some(params)));
            assert_eq!(error.code.0, code, "{method}: {error:?}");
            assert!(error.message.contains(text), "{method}: {error:?}");
        }
    }
}
