//! The agent card.

use std::collections::HashMap;

use a2a::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, HttpAuthSecurityScheme,
    SecurityScheme, TRANSPORT_PROTOCOL_GRPC, TRANSPORT_PROTOCOL_HTTP_JSON,
    TRANSPORT_PROTOCOL_JSONRPC,
};

use crate::receipt_extension;

/// Description of a served agent.
#[derive(Debug, Clone)]
pub struct AgentDescription {
    /// Name for people.
    pub name: String,
    /// Purpose of the agent, in one sentence.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    /// Base URL of JSON-RPC and REST, such as `http://127.0.0.1:8080`.
    pub http_url: String,
    /// Address of gRPC, if it is served.
    pub grpc_url: Option<String>,
}

/// The card of an agent: the interfaces that are served, streaming, and the receipt extension.
pub fn agent_card(agent: &AgentDescription) -> AgentCard {
    let mut interfaces = vec![
        AgentInterface::new(&agent.http_url, TRANSPORT_PROTOCOL_JSONRPC),
        AgentInterface::new(&agent.http_url, TRANSPORT_PROTOCOL_HTTP_JSON),
    ];
    if let Some(url) = &agent.grpc_url {
        interfaces.push(AgentInterface::new(url, TRANSPORT_PROTOCOL_GRPC));
    }
    let text = || vec!["text/plain".to_owned()];
    AgentCard {
        name: agent.name.clone(),
        description: agent.description.clone(),
        version: agent.version.clone(),
        supported_interfaces: interfaces,
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extended_agent_card: Some(false),
            extensions: Some(vec![receipt_extension::declaration()]),
        },
        default_input_modes: text(),
        default_output_modes: text(),
        skills: vec![AgentSkill {
            id: "default".to_owned(),
            name: agent.name.clone(),
            description: agent.description.clone(),
            tags: vec!["agent".to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        }],
        provider: None,
        documentation_url: None,
        icon_url: None,
        security_schemes: None,
        security_requirements: None,
        signatures: None,
    }
}

/// Name of the security scheme of bearer tokens in a card.
const BEARER: &str = "bearer";

/// Declares in the card that each request needs a bearer token. Clients that hold a token send it only to an agent
/// whose card declares this.
pub fn require_bearer_token(card: &mut AgentCard) {
    let scheme = SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
        scheme: "Bearer".to_owned(),
        description: None,
        bearer_format: None,
    });
    card.security_schemes = Some(HashMap::from([(BEARER.to_owned(), scheme)]));
    card.security_requirements = Some(vec![HashMap::from([(BEARER.to_owned(), Vec::new())])]);
}
