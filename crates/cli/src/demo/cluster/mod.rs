//! `allstop demo --cluster`: runs the servers and workers of a cluster as processes of this machine, and causes
//! failures that a cluster must survive.
//!
//! Each process of the demo has a keeper: a small process that kills the whole process tree when the demo ends.
//! Therefore no process outlives the demo, even if the demo is killed. The kernel reports to the keeper when the last
//! process of a killed worker has ended.

mod account;
mod evidence;
mod nats_program;
mod nats_servers;
mod process;
mod script;
mod story;
mod tasks;
mod wait;
mod workers;

use std::path::Path;
use std::time::Duration;

use allstop_core::{Cause, CauseKind, Extent};
use allstop_process::child_processes;
use allstop_scope::{Scope, StopRequest};

use super::DemoFolder;
use super::proof::DemoProof;
use super::report::DemoReport;
use crate::error::CliError;
use crate::host::ProcessHost;
use evidence::{processes_that_name, still_alive};
use nats_program::NatsProgram;
use process::DemoLauncher;
use story::DemoStory;

/// Time limit of the demo.
pub(super) const CLUSTER_DEMO_MAX: Duration = Duration::from_mins(1);

/// Runs the demo. True if every proof holds.
pub(super) async fn play(
    host: &ProcessHost,
    root: &Scope,
    folder: &DemoFolder,
    report: &mut DemoReport<'_>,
    nats_server: Option<&Path>,
) -> Result<bool, CliError> {
    let began = std::time::Instant::now();
    let launcher = DemoLauncher::new(host, root, folder.path())?;
    let program = NatsProgram::find(nats_server)?;
    let version = program.check(&launcher).await?;
    let mut story = DemoStory::begin(launcher, &program, &version, report).await?;
    story.run_tasks().await?;
    story.stop_a_task().await?;
    story.kill_a_worker().await?;
    story.kill_a_server().await?;
    story.end_workers().await?;
    story.account(root).await?;
    let seen = story.end_all().await?;

    let over = Cause::new(CauseKind::Parent).detail("the demo is over");
    let last = root.stop(StopRequest::new(Extent::Process, over)).await;
    // Idle keepers wait for another command, so close them.
    host.keepers.close();
    if let Err(why) = folder.remove().await {
        report.left(&why);
    }
    report.proofs(vec![
        DemoProof::of(
            format!("of {} processes that the demo has seen, alive", seen.len()),
            still_alive(&seen),
            0,
        ),
        DemoProof::of(
            "processes that name the demo's folder",
            processes_that_name(&folder.path().to_string_lossy()),
            0,
        ),
        DemoProof::of(
            "child processes of any kind",
            child_processes().len() as u64,
            0,
        ),
        DemoProof::of(
            "temporary folders of the demo",
            u64::from(folder.path().exists()),
            0,
        ),
    ]);
    let seconds = began.elapsed().as_secs_f64();
    report.field("elapsed_ms", began.elapsed().as_millis() as u64);
    report.conclude(format!(
        "every proof holds, and nothing is left; the demo took {seconds:.0} s"
    ));
    Ok(report.all_hold() && last.quiet())
}
