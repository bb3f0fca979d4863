use std::time::Duration;

use allstop_core::HumanDuration;
use allstop_scope::GRACE_DEFAULT;
use clap::Args;

/// The flag `--grace`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GraceArgs {
    /// Time that a stop waits before it uses force [default: 2s]
    #[arg(
        long = "grace",
        value_name = "TIME",
        allow_hyphen_values = true,
        help_heading = "Limits"
    )]
    pub(crate) time: Option<HumanDuration>,
}

impl GraceArgs {
    /// The grace period of a command without a configuration file.
    pub(crate) fn or_default(&self) -> Duration {
        self.time.map_or(GRACE_DEFAULT, Duration::from)
    }
}
