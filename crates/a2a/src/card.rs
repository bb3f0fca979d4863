//! The agent card of A2A: a JSON document that describes an agent and the interfaces of its server.

use std::collections::HashMap;

use a2a::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill,
    HttpAuthSecurityScheme, SecurityRequirement, SecurityScheme, TRANSPORT_PROTOCOL_GRPC,
    TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_JSONRPC,
};

use serde_json::{Map, Value};

use crate::receipt_extension;
use crate::v0_3::card::interface;

/// URI of the extension for facts about the server. The extended card contains the requesting client's name and limits
/// under this URI.
pub const SERVER_EXTENSION: &str = "https://allstop.dev/a2a/server/v1";

/// Description of a served agent.
#[derive(Debug, Clone)]
pub struct AgentDescription {
    /// Display name of the agent.
    pub name: String,
    /// Purpose of the agent, in one sentence.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    /// Base URL of JSON-RPC and REST, such as `http://127.0.0.1:8080`.
    pub http_url: String,
    /// Address of gRPC, such as `host:port` or an `https` URL; `None` if gRPC is not served.
    pub grpc_url: Option<String>,
}

/// Creates the card of an agent: the served interfaces, streaming, and the extension for receipts of stops.
pub fn agent_card(agent: &AgentDescription) -> AgentCard {
    let mut interfaces = vec![
        AgentInterface::new(&agent.http_url, TRANSPORT_PROTOCOL_JSONRPC),
        AgentInterface::new(&agent.http_url, TRANSPORT_PROTOCOL_HTTP_JSON),
    ];
    if let Some(url) = &agent.grpc_url {
        interfaces.push(AgentInterface::new(url, TRANSPORT_PROTOCOL_GRPC));
    }
    interfaces.push(interface(&agent.http_url));
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

/// Kind of bearer token that a server accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BearerScheme {
    /// Token that the operator has given to the client.
    Token,
    /// JSON Web Token.
    Jwt {
        /// Issuer of the tokens.
        issuer: String,
        /// Audience that the tokens must have.
        audience: String,
    },
}

/// Returns the card of a server that authenticates its clients. The card declares that each request needs a token of
/// one of the schemes, and that the server has an extended card.
#[must_use]
pub fn secured_card(mut card: AgentCard, schemes: &[BearerScheme]) -> AgentCard {
    let named = schemes.iter().map(|scheme| match scheme {
        BearerScheme::Token => (
            "token",
            "A token from the operator of this server.".to_owned(),
            None,
        ),
        BearerScheme::Jwt { issuer, audience } => (
            "jwt",
            format!("A JSON Web Token of the issuer {issuer} for the audience {audience}."),
            Some("JWT".to_owned()),
        ),
    });
    let (mut by_name, mut alternatives) = (HashMap::new(), Vec::new());
    for (name, description, bearer_format) in named {
        let scheme = SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
            scheme: "Bearer".to_owned(),
            description: Some(description),
            bearer_format,
        });
        by_name.insert(name.to_owned(), scheme);
        alternatives.push(SecurityRequirement::from([(name.to_owned(), Vec::new())]));
    }
    card.security_schemes = Some(by_name);
    card.security_requirements = Some(alternatives);
    card.capabilities.extended_agent_card = Some(true);
    card
}

/// Returns the card for authenticated clients: the public card, and the limits that the server applies to these
/// clients.
#[must_use]
pub fn extended_agent_card(mut card: AgentCard, limits: Map<String, Value>) -> AgentCard {
    let extension = AgentExtension {
        uri: SERVER_EXTENSION.to_owned(),
        description: Some(
            "The name of the client on this server, and the limits of its tasks.".to_owned(),
        ),
        required: Some(false),
        params: Some(HashMap::from([(
            "limits".to_owned(),
            Value::Object(limits),
        )])),
    };
    let extensions = card.capabilities.extensions.get_or_insert_default();
    extensions.push(extension);
    card
}

/// Returns the extended card with the name of the requesting client.
pub(crate) fn for_principal(card: &AgentCard, principal: &str) -> AgentCard {
    let mut card = card.clone();
    let extensions = card.capabilities.extensions.iter_mut().flatten();
    for extension in extensions.filter(|extension| extension.uri == SERVER_EXTENSION) {
        let params = extension.params.get_or_insert_default();
        params.insert("principal".to_owned(), principal.into());
    }
    card
}
