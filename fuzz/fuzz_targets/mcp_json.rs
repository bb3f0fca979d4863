//! Any `.mcp.json` of a project. Each server that is not left out has either a command or a URL.
#![no_main]

use std::path::Path;

use allstop_runtime::config::{Config, McpJsonFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(file) = McpJsonFile::parse(Path::new("/project/.mcp.json"), text.to_owned()) else {
        return;
    };
    let mut config = Config::default();
    config.add_servers(&file);
    assert_eq!(config.mcp.servers.len(), file.servers.len());
    for (name, server) in &config.mcp.servers {
        assert_ne!(server.command.is_some(), server.url.is_some(), "{name}");
        assert!(server.expands_variables);
    }
});
