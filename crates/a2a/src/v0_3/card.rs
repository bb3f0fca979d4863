//! The agent card for clients of both versions: the card of version 1 with the fields of version 0.3.
//!
//! The fields of both versions have different names, and clients ignore unknown fields.

use a2a::{AgentCard, AgentInterface, SecurityScheme, TRANSPORT_PROTOCOL_JSONRPC};
use serde_json::{Map, Value, json};

use crate::version;

/// Version in the field `protocolVersion` of version 0.3.
const PROTOCOL_VERSION: &str = "0.3.0";

/// Returns the interfaces of a server over JSON-RPC with version 0.3. They come last, because clients prefer the first.
pub(crate) fn interface(http_url: &str) -> AgentInterface {
    AgentInterface {
        protocol_version: version::V0_3.to_owned(),
        ..AgentInterface::new(http_url, TRANSPORT_PROTOCOL_JSONRPC)
    }
}

/// Returns the card as JSON, with the fields of version 0.3.
pub(crate) fn with_fields_of_v0_3(card: &AgentCard) -> serde_json::Result<Value> {
    let mut merged = serde_json::to_value(card)?;
    let Some(fields) = merged.as_object_mut() else {
        return Ok(merged);
    };
    let mut interfaces = card.supported_interfaces.iter();
    let Some(interface) = interfaces.find(|it| it.protocol_version == version::V0_3) else {
        return Ok(merged);
    };
    let (url, transport) = (&interface.url, &interface.protocol_binding);
    fields.insert("url".to_owned(), json!(url));
    fields.insert("preferredTransport".to_owned(), json!(transport));
    fields.insert("protocolVersion".to_owned(), json!(PROTOCOL_VERSION));
    fields.insert(
        "additionalInterfaces".to_owned(),
        json!([{"url": url, "transport": transport}]),
    );
    if card.capabilities.extended_agent_card == Some(true) {
        fields.insert("supportsAuthenticatedExtendedCard".to_owned(), json!(true));
    }
    if let Some(requirements) = &card.security_requirements {
        fields.insert("security".to_owned(), json!(requirements));
    }
    let merged_schemes = fields.get_mut("securitySchemes");
    let merged_schemes = merged_schemes.and_then(Value::as_object_mut);
    if let (Some(merged), Some(schemes)) = (merged_schemes, &card.security_schemes) {
        for (name, scheme) in schemes {
            if let Some(merged) = merged.get_mut(name).and_then(Value::as_object_mut) {
                add_scheme(merged, scheme);
            }
        }
    }
    Ok(merged)
}

/// Adds the fields of a scheme. In version 0.3, the field `type` names the kind of a scheme. This server declares only
/// schemes of HTTP.
fn add_scheme(merged: &mut Map<String, Value>, scheme: &SecurityScheme) {
    let SecurityScheme::HttpAuth(http) = scheme else {
        return;
    };
    merged.insert("type".to_owned(), json!("http"));
    merged.insert("scheme".to_owned(), json!(http.scheme));
    if let Some(description) = &http.description {
        merged.insert("description".to_owned(), json!(description));
    }
    if let Some(format) = &http.bearer_format {
        merged.insert("bearerFormat".to_owned(), json!(format));
    }
}
