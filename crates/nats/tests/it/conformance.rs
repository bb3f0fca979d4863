//! The conformance tests that every log must pass, with one server and with three servers.

use crate::support::{on_one_server, on_three_servers};

allstop_log::log_conformance!(one_server, on_one_server());
allstop_log::log_conformance!(three_servers, on_three_servers());
