//! Takes the place of the validation of arguments in a build without the feature `validation`. Each tool then checks
//! its own arguments, as tools with typed arguments always do.

use serde_json::Value;

use crate::tool::ToolError;

/// A schema that is not compiled.
pub(crate) struct UncheckedArguments;

#[expect(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "the functions of the validation"
)]
impl UncheckedArguments {
    /// Accepts every schema.
    pub(crate) fn compile(_schema: &Value) -> Result<Self, String> {
        Ok(Self)
    }

    /// Accepts every schema.
    pub(super) fn compile_whole(_schema: &Value) -> Result<Self, String> {
        Ok(Self)
    }

    /// Always true: no check is made.
    pub(super) fn is_quick(&self, _arguments: &Value) -> bool {
        true
    }

    /// Accepts all values.
    pub(super) fn check_value(&self, _value: &Value, _whole: &str) -> Result<(), String> {
        Ok(())
    }

    /// Accepts all arguments.
    pub(super) fn check(&self, _tool: &str, _arguments: &Value) -> Result<(), ToolError> {
        Ok(())
    }
}
