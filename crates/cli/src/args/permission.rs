//! Flags that set the permission mode, or answer permission questions.

use allstop_runtime::Config;
use allstop_tools::permission::{PermissionAnswer, PermissionMode};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Permissions")]
pub(crate) struct PermissionArgs {
    /// Approve all tool calls without asking, except those that a rule denies
    #[arg(long, short, conflicts_with = "deny")]
    pub(crate) yes: bool,
    /// Deny all tool calls that need a question (the default without a terminal)
    #[arg(long)]
    pub(crate) deny: bool,
    /// Calls that run without a question: `plan` (reads run, all other calls are denied), `ask` (reads run, all other
    /// calls ask) or `accept-edits` (like `ask`, but file changes in the working directory also run) [default: ask]
    #[arg(long, value_name = "MODE", value_parser = modes())]
    pub(crate) mode: Option<PermissionMode>,
}

impl PermissionArgs {
    /// Fixed answer to all permission questions; `None` if the user is asked.
    pub(crate) fn answer(&self) -> Option<PermissionAnswer> {
        match (self.yes, self.deny) {
            (true, _) => Some(PermissionAnswer::AllowOnce),
            (_, true) => Some(PermissionAnswer::deny()),
            _ => None,
        }
    }

    /// Flag that answers all permission questions; `None` if neither `--yes` nor `--deny` is given.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        match (self.yes, self.deny) {
            (true, _) => Some("--yes"),
            (_, true) => Some("--deny"),
            _ => None,
        }
    }

    /// Sets the mode of the configuration if `--mode` is given.
    pub(crate) fn set_mode(&self, config: &mut Config) {
        if let Some(mode) = self.mode {
            config.permissions.mode = mode;
        }
    }
}

fn modes() -> impl TypedValueParser<Value = PermissionMode> {
    let modes = PermissionMode::ALL.map(|mode| PossibleValue::new(mode.as_str()));
    PossibleValuesParser::new(modes).try_map(|name| name.parse::<PermissionMode>())
}
