//! Placeholder for the cluster demo in a program that was built without NATS.

use std::path::Path;
use std::time::Duration;

use allstop_scope::Scope;

use super::DemoFolder;
use super::report::DemoReport;
use crate::error::CliError;
use crate::host::ProcessHost;

pub(super) const CLUSTER_DEMO_MAX: Duration = Duration::ZERO;

/// Returns an error about the missing feature.
#[expect(clippy::unused_async, reason = "the demo itself awaits")]
pub(super) async fn play(
    _host: &ProcessHost,
    _root: &Scope,
    _folder: &DemoFolder,
    _report: &mut DemoReport<'_>,
    _nats_server: Option<&Path>,
) -> Result<bool, CliError> {
    Err(CliError::not_built("--cluster", "nats"))
}
