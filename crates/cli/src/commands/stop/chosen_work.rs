//! The work that a stop is to end: sessions that processes have open, and work that was left without one.

use std::collections::HashSet;

use allstop_core::SessionId;

use super::super::open_session::{
    AskedProcesses, OpenTarget, ask_processes, given_id, meant, no_session,
};
use super::super::sessions::{open, resolve};
use super::left_work::LeftWork;
use crate::args::StopArgs;
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::remote::RemoteExtent;
use crate::shell_command::SameFlags;
use crate::short_id::LAST;

/// The work that was named.
#[derive(Default)]
pub(super) struct ChosenWork {
    pub(super) targets: Vec<OpenTarget>,
    pub(super) left: LeftWork,
    /// Reasons for which work that may be meant cannot be stopped, a line each.
    pub(super) problems: Vec<String>,
}

impl ChosenWork {
    /// Looks for it.
    ///
    /// # Errors
    /// If it is not there, or cannot be opened, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn of(args: &StopArgs, host: &ProcessHost) -> Result<Self, CliError> {
        let asked = ask_processes().await?;
        match args.id.as_deref() {
            None => Self::all(asked, args, host).await,
            Some(given) => Self::one(asked, given, args, host).await,
        }
    }

    async fn all(
        asked: AskedProcesses,
        args: &StopArgs,
        host: &ProcessHost,
    ) -> Result<Self, CliError> {
        let mut chosen = Self {
            problems: asked.silent.iter().map(ToString::to_string).collect(),
            ..Self::default()
        };
        // Work without a process has no turn.
        if args.extent != RemoteExtent::Turn {
            let told: HashSet<_> = asked.open.iter().map(|open| open.session.clone()).collect();
            let (log, _outputs) = open(&args.store, host).await?;
            let left = LeftWork::of_store(log, host.scopes(), &told, &asked.pids).await?;
            let (left, in_the_way) = left;
            chosen.left = left;
            chosen.problems.extend(in_the_way);
        }
        chosen.targets = asked.open;
        Ok(chosen)
    }

    async fn one(
        asked: AskedProcesses,
        given: &str,
        args: &StopArgs,
        host: &ProcessHost,
    ) -> Result<Self, CliError> {
        let AskedProcesses { open, silent, .. } = asked;
        let id = given_id(given, &open, &args.store, host).await?;
        if let Some(target) = meant(open, &id)? {
            // The session that was active last may be that of a process which does not answer.
            let silent = silent.iter().filter(|_| given == LAST);
            return Ok(Self {
                targets: vec![target],
                problems: silent.map(ToString::to_string).collect(),
                ..Self::default()
            });
        }
        if given == LAST {
            return Err(no_session(&silent));
        }
        Self::left_of(given, args, host)
            .await
            .map_err(|error| match silent.first() {
                // It may be the one that has the session open.
                Some(silent) => CliError::failure(silent.to_string()),
                None => error,
            })
    }

    /// Work of a session that no process has open.
    async fn left_of(given: &str, args: &StopArgs, host: &ProcessHost) -> Result<Self, CliError> {
        let flags = SameFlags::of_store(&args.store);
        let (log, _outputs) = open(&args.store, host).await?;
        let id = resolve(&*log, given, &flags).await?;
        if args.call.is_some() || args.extent == RemoteExtent::Turn {
            return Err(not_open(args, &id, &flags));
        }
        Ok(Self {
            left: LeftWork::of_session(log, host.scopes(), id).await?,
            ..Self::default()
        })
    }
}

/// Error for a stop of the turn, or of one of its calls, in a session in which no turn can run.
fn not_open(args: &StopArgs, id: &SessionId, flags: &SameFlags) -> CliError {
    let flag = if args.call.is_some() {
        "--call"
    } else {
        "--extent turn"
    };
    let message = format!("no process has the session `{id}` open: {flag} finds nothing to stop");
    let stop = flags.stop(id);
    CliError::usage(message).hint(format!("`{stop}` stops work that was left running"))
}
