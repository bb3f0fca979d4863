//! Any schema of a tool, as a program or a server might send it, and any arguments. The input is `schema`, a line feed,
//! and `arguments`.
#![no_main]

use std::sync::Arc;

use allstop_core::Effect;
use allstop_tools::{Tool, ToolError, ToolInvocation, ToolOutput, ToolRegistry, ToolSpec};
use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A tool that has only a specification and does nothing.
#[derive(Debug)]
struct Declared(ToolSpec);

impl Tool for Declared {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolInvocation) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        unreachable!("nothing is called here")
    }
}

fuzz_target!(|text: &str| {
    let Some((schema, arguments)) = text.split_once('\n') else {
        return;
    };
    let (Ok(schema), Ok(arguments)) = (
        serde_json::from_str::<Value>(schema),
        serde_json::from_str::<Value>(arguments),
    ) else {
        return;
    };
    let mut tools = ToolRegistry::new();
    let registered = tools.register(Arc::new(Declared(
        ToolSpec::new("declared", "", Arc::new(schema))
            .effect(Effect::ReadOnly)
            .parallel(true),
    )));
    if registered.is_err() {
        return;
    }
    let tool = tools.get("declared").expect("it was registered");
    let first = tool
        .check_arguments(&arguments)
        .map_err(|wrong| wrong.message);
    let again = tool
        .check_arguments(&arguments)
        .map_err(|wrong| wrong.message);
    assert_eq!(first, again, "the answer is not always the same");
});
