//! Tools by name, each with the check of its arguments.

mod arguments;

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::tool::{Tool, ToolError, ToolSpec};
use arguments::ArgumentCheck;

/// Why a tool was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The name is taken: the model could not tell the two apart.
    #[error("a tool named {name:?} is registered already")]
    Duplicate {
        /// The name.
        name: Arc<str>,
    },
    /// Providers accept 1 to 64 letters, digits, `_` and `-`.
    #[error("the tool name {name:?} is not 1 to 64 letters, digits, `_` or `-`")]
    Name {
        /// The name.
        name: Arc<str>,
    },
    /// The schema of its arguments is none.
    #[error("the argument schema of the tool {name:?} is invalid: {detail}")]
    Schema {
        /// The tool.
        name: Arc<str>,
        /// What is wrong with it.
        detail: String,
    },
}

/// The longest tool name: what the strictest of the usual providers accepts.
const NAME_LEN_MAX: usize = 64;

/// Tools, in the order of their registration. Built once, then shared and only read. A clone shares the tools.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry {
    tools: Vec<RegisteredTool>,
}

impl ToolRegistry {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool and compiles the check of its arguments.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.check_name(&tool)?;
        let spec = tool.spec();
        let check = ArgumentCheck::compile(&spec.input_schema).map_err(|detail| {
            let name = Arc::clone(&spec.name);
            RegistryError::Schema { name, detail }
        })?;
        let arguments = Arc::new(Ok(check).into());
        self.tools.push(RegisteredTool { tool, arguments });
        Ok(())
    }

    /// Adds a tool whose schema is known to be valid, as those of built-in tools are. The check of its arguments is
    /// compiled with its first call: compiling those of a dozen tools is a quarter of what a short run takes.
    pub fn register_known(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.check_name(&tool)?;
        let arguments = Arc::default();
        self.tools.push(RegisteredTool { tool, arguments });
        Ok(())
    }

    fn check_name(&self, tool: &Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = Arc::clone(&tool.spec().name);
        if !is_valid_name(&name) {
            return Err(RegistryError::Name { name });
        }
        if self.get(&name).is_some() {
            return Err(RegistryError::Duplicate { name });
        }
        Ok(())
    }

    /// Those whose names are wanted.
    #[must_use]
    pub fn chosen(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let chosen = |tool: &&RegisteredTool| wanted(&tool.spec().name);
        Self {
            tools: self.tools.iter().filter(chosen).cloned().collect(),
        }
    }

    /// The tool of this name. Names are few, so a walk beats a map.
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools
            .iter()
            .find(|registered| &*registered.spec().name == name)
    }

    /// The tool of this name, or the error result that tells the model which ones there are.
    pub fn find(&self, name: &str) -> Result<&RegisteredTool, ToolError> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.specs().map(|spec| &*spec.name).collect();
            ToolError::new(format!(
                "unknown tool {name:?}; known tools: {}",
                names.join(", ")
            ))
        })
    }

    /// What the tools are, in order. Every field is shared, so that declaring them to a model clones pointers only.
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &ToolSpec> {
        self.tools.iter().map(RegisteredTool::spec)
    }
}

/// One tool of a registry.
#[derive(Clone)]
pub struct RegisteredTool {
    tool: Arc<dyn Tool>,
    arguments: Arc<OnceLock<Result<ArgumentCheck, String>>>,
}

impl RegisteredTool {
    /// The tool.
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// What it is.
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// Checks a call's arguments against the schema, before anything else is done with the call. The error names
    /// each field that is wrong, and is the call's error result for the model.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        let spec = self.spec();
        let compile = || ArgumentCheck::compile(&spec.input_schema);
        match self.arguments.get_or_init(compile) {
            Ok(check) => check.check(&spec.name, arguments),
            Err(detail) => Err(ToolError::new(format!(
                "the argument schema of `{}` is invalid: {detail}; it was not run",
                spec.name
            ))),
        }
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredTool").field(&self.tool).finish()
    }
}

fn is_valid_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
