//! Agents that every session offers as sub-agents.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_agent::SubAgentKind;

/// An agent of the server.
struct BuiltinAgent {
    name: &'static str,
    description: &'static str,
    instructions: &'static str,
    /// Names of the tools; `None` for all tools of the session.
    tools: Option<&'static [&'static str]>,
}

const AGENTS: [BuiltinAgent; 2] = [
    BuiltinAgent {
        name: "explore",
        description: "Searches and reads files, and answers questions about them. It changes nothing.",
        instructions: "You answer a question of another agent about files. Search and read them, and change nothing. Your last \
            message is the answer: name the files and lines that support it.",
        tools: Some(&["view", "list", "grep", "glob"]),
    },
    BuiltinAgent {
        name: "general-purpose",
        description: "Does a task of several steps, with tools like yours.",
        instructions: "You do a task for another agent. Your last message is the result.",
        tools: None,
    },
];

/// Returns the agents of the server without the excluded agents.
pub(crate) fn kinds(excluded: &BTreeSet<String>) -> impl Iterator<Item = SubAgentKind> {
    let offered = AGENTS.iter().filter(|agent| !excluded.contains(agent.name));
    offered.map(|agent| SubAgentKind {
        name: agent.name.into(),
        description: agent.description.into(),
        instructions: agent.instructions.into(),
        tools: agent
            .tools
            .map(|tools| tools.iter().map(|tool| Arc::from(*tool)).collect()),
        model: None,
        reasoning_effort: None,
    })
}
