//! The registry of tools by name, with validation of their arguments.

#[cfg(feature = "validation")]
mod arguments;
mod schema_check;
#[cfg(feature = "validation")]
mod schema_cost;
#[cfg(not(feature = "validation"))]
mod unchecked_arguments;

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::tool::{Tool, ToolError, ToolSpec};
#[cfg(feature = "validation")]
pub(crate) use arguments::ArgumentCheck;
pub use schema_check::SchemaCheck;
#[cfg(not(feature = "validation"))]
pub(crate) use unchecked_arguments::UncheckedArguments as ArgumentCheck;

/// Reason why a tool was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A tool with this name exists. The model could not distinguish the two tools.
    #[error("a tool named {name:?} is registered already")]
    Duplicate {
        /// Name of both tools.
        name: Arc<str>,
    },
    /// The name is invalid: providers accept 1 to 64 letters, digits, `_` and `-`.
    #[error("the tool name {name:?} is not 1 to 64 letters, digits, `_` or `-`")]
    Name {
        /// The invalid name.
        name: Arc<str>,
    },
    /// The JSON schema of the tool's arguments is invalid.
    #[error("the argument schema of the tool {name:?} is invalid: {detail}")]
    Schema {
        /// Name of the tool.
        name: Arc<str>,
        /// Error in the schema.
        detail: String,
    },
}

/// Maximum length of a tool's name, in bytes: the limit of the strictest common provider.
pub const TOOL_NAME_LEN_MAX: usize = 64;

/// Tools in the order of their registration. A registry is built once, and then shared and only read. Clones share the
/// tools.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry {
    tools: Vec<RegisteredTool>,
}

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool, and compiles its schema.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.check_name(&tool)?;
        let spec = tool.spec();
        check_is_object(spec)?;
        let check = ArgumentCheck::compile(&spec.input_schema).map_err(|detail| {
            let name = Arc::clone(&spec.name);
            RegistryError::Schema { name, detail }
        })?;
        let arguments = Arc::new(Ok(check).into());
        self.tools.push(RegisteredTool { tool, arguments });
        Ok(())
    }

    /// Adds a tool with a schema that is known to be valid, such as a built-in tool. The schema is compiled at the
    /// first call, because the compilation of a dozen schemas takes a quarter of the time of a short run.
    pub fn register_known(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.check_name(&tool)?;
        let arguments = Arc::default();
        self.tools.push(RegisteredTool { tool, arguments });
        Ok(())
    }

    fn check_name(&self, tool: &Arc<dyn Tool>) -> Result<(), RegistryError> {
        let name = Arc::clone(&tool.spec().name);
        if !is_valid_tool_name(&name) {
            return Err(RegistryError::Name { name });
        }
        if self.get(&name).is_some() {
            return Err(RegistryError::Duplicate { name });
        }
        Ok(())
    }

    /// Returns a registry of the tools whose names satisfy `wanted`.
    #[must_use]
    pub fn chosen(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let chosen = |tool: &&RegisteredTool| wanted(&tool.spec().name);
        Self {
            tools: self.tools.iter().filter(chosen).cloned().collect(),
        }
    }

    /// Returns the tool with this name. A registry has few tools, so a search is faster than a map.
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.tools
            .iter()
            .find(|registered| &*registered.spec().name == name)
    }

    /// Returns the tool with this name, or an error result for the model that lists the known tools.
    pub fn find(&self, name: &str) -> Result<&RegisteredTool, ToolError> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.specs().map(|spec| &*spec.name).collect();
            ToolError::new(format!(
                "unknown tool {name:?}; known tools: {}",
                names.join(", ")
            ))
        })
    }

    /// Specifications of the tools, in order. All fields are shared pointers, so a declaration of the tools to a model
    /// clones only pointers.
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &ToolSpec> {
        self.tools.iter().map(RegisteredTool::spec)
    }
}

/// The arguments of a call are one JSON object: providers refuse every other schema.
fn check_is_object(spec: &ToolSpec) -> Result<(), RegistryError> {
    let Some(kind) = spec.input_schema.get("type") else {
        return Ok(()); // A schema of several alternatives, or of any value.
    };
    let allows_object = match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        // A value of another type is an error of the schema itself.
        kind => kind == "object" || !kind.is_string(),
    };
    if allows_object {
        return Ok(());
    }
    Err(RegistryError::Schema {
        name: Arc::clone(&spec.name),
        detail: format!(
            "its type is {kind}, but arguments are an object: use a struct with named fields"
        ),
    })
}

/// A registered tool.
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

    /// Specification of the tool.
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// True if the check of these arguments may take longer than a millisecond. Such a check must not run on a thread
    /// that stops and deadlines need.
    pub fn is_long_check(&self, arguments: &Value) -> bool {
        let check = self.compiled().as_ref();
        check.is_ok_and(|check| !check.is_quick(arguments))
    }

    fn compiled(&self) -> &Result<ArgumentCheck, String> {
        let compile = || ArgumentCheck::compile(&self.spec().input_schema);
        self.arguments.get_or_init(compile)
    }

    /// Validates the arguments of a call, before any other step. The error names the wrong fields. The model receives
    /// this error as the result of the call.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        let spec = self.spec();
        match self.compiled() {
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

/// True if every provider accepts this tool name: ASCII letters, digits, `_` and `-`, at most [`TOOL_NAME_LEN_MAX`]
/// bytes.
pub fn is_valid_tool_name(name: &str) -> bool {
    (1..=TOOL_NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
