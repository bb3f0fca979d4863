//! Tests of the command from the user's point of view: the real binary, with real files, sockets, terminals and
//! processes.
//!
//! The tests check observable results: exit codes, output, requests that a server received, files, and the remaining
//! processes in `/proc`. Tests that measure time are in modules named `alone`.

mod support;

mod a2a_clients;
mod at_terminal;
mod background;
mod bad_input;
mod call_outputs;
mod chat;
mod chat_display;
mod chat_messages;
mod chat_sizes;
mod cluster;
mod completions;
mod conversation;
mod copilot_clients;
mod crash;
mod demo_cluster;
mod doctor;
mod endings;
mod erase;
mod fault_sweep;
mod hostile_provider;
mod init;
mod instructions;
mod kept_crash;
mod lost_effects;
mod mcp_commands;
mod modes;
mod namespaces;
mod odd_times;
mod one_receipt;
mod open_files;
mod output_budget;
mod permission_wait;
mod pick;
mod progress;
mod project_config;
mod random_stops;
mod real_model;
mod remote;
mod remote_left;
mod remote_servers;
mod remote_socket;
mod resume;
mod scripts;
mod serve;
mod serve_access;
mod serve_agent;
mod serve_push;
mod serve_retention;
mod servers;
mod shell;
mod stalls;
mod stop_receipts;
mod stop_stores;
mod store_commands;
mod store_files;
mod surface;
mod tasks;
mod tasks_hostile;
mod telemetry;
mod terminal_text;
