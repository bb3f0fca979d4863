//! Tests of the server through its public interface: clients that write frames by hand, and a scripted model.

mod access;
mod bad_input;
mod canvases;
mod carried_requests;
mod compaction;
mod elicitation;
mod extensions;
mod families;
mod handlers;
mod history;
mod hooks;
mod key_order;
mod limits;
mod mcp_tokens;
mod messages;
mod opening_and_closing;
mod plan_mode;
mod prompt_sections;
mod queue;
mod resume_open;
mod sdk_semantics;
mod settings;
mod shell;
mod sub_agents;
mod support;
mod vision;
