//! Processes of the demo. Each has a keeper: a small process that kills the whole process tree when the demo ends. So
//! no process outlives the demo.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::ItemKind;
use allstop_process::{
    ContainmentChoice, ExitInfo, OutputReader, ProcessSignal, ProcessSpec, TreeMember, signal,
};
use allstop_scope::{Process, Scope, WorkSpec};
use anyhow::Context as _;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::CliError;
use crate::host::{ProcessHost, variables_with_prefix};

/// Maximum bytes of a process's output that are kept, to wait for lines and for error messages.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// Maximum wait for the start of a process.
const START_MAX: Duration = Duration::from_secs(5);

/// Starts the processes of the demo.
pub(super) struct DemoLauncher {
    scope: Scope,
    /// Separate scope of the work that reads output, so that the receipts of stops do not list this work.
    readers: Scope,
    containment: ContainmentChoice,
    folder: PathBuf,
    hidden: Vec<OsString>,
    /// Path of this program.
    pub(super) allstop: PathBuf,
    number: Cell<u32>,
}

/// A process of the demo.
#[derive(Debug)]
pub(super) struct DemoProcess {
    pub(super) name: String,
    process: Process,
    output: watch::Receiver<String>,
    identity: Option<ProcessIdentity>,
}

impl DemoLauncher {
    pub(super) fn new(host: &ProcessHost, scope: &Scope, folder: &Path) -> Result<Self, CliError> {
        let mut hidden = ProcessHost::secret_variables(&[]);
        // Hides these variables from the processes of the demo, so that the processes depend only on their flags.
        for prefix in ["ALLSTOP_", "OTEL_"] {
            hidden.extend(variables_with_prefix(prefix));
        }
        Ok(Self {
            scope: scope.clone(),
            readers: Scope::root("output of the demo's processes", host.scopes()),
            containment: host.scopes().containment,
            folder: folder.to_owned(),
            hidden,
            allstop: ProcessHost::program()?,
            number: Cell::new(0),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a program in the demo's folder.
    pub(super) fn start<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<DemoProcess, CliError> {
        let number = self.number.get() + 1;
        self.number.set(number);
        let folder = self.folder.as_os_str();
        let env = |variable| (variable, folder);
        let spec = ProcessSpec::new(program, format!("{}-{number}", self.folder.display()))
            .args(args.into_iter().map(|arg| arg.as_ref().to_owned()))
            .cwd(self.folder.clone())
            // With these variables, the processes do not read the user's configuration, and write all files into the
            // folder that the demo removes.
            .envs(["XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"].map(env))
            .env_hidden(self.hidden.clone())
            .containment(self.containment.clone());
        let work = WorkSpec::new(ItemKind::Process, name);
        let started = self.scope.spawn_process(work, spec);
        let (process, reader) = started.with_context(|| format!("{name} does not start"))?;
        let (output, lines) = watch::channel(String::new());
        let work = WorkSpec::new(ItemKind::Future, "output");
        let reading = self.readers.spawn(work, |_cx| read(reader, output));
        drop(reading.context("a reader of output")?);
        Ok(DemoProcess {
            name: name.to_owned(),
            process,
            output: lines,
            identity: None,
        })
    }
}

/// Reads the output of a process until the whole process tree has ended, and keeps the last part of the output.
async fn read(mut reader: OutputReader, output: watch::Sender<String>) {
    let mut buffer = [0; 4096];
    let mut has_exited = false;
    loop {
        let read = if has_exited {
            reader.read_leftovers(&mut buffer).await
        } else {
            reader.read(&mut buffer).await
        };
        match read {
            Ok(0) | Err(_) if has_exited => return,
            Ok(0) | Err(_) => has_exited = true,
            Ok(len) => output.send_modify(|text| {
                text.push_str(&String::from_utf8_lossy(
                    buffer.get(..len).unwrap_or_default(),
                ));
                let surplus = text.len().saturating_sub(OUTPUT_BYTES_MAX);
                let cut = text.ceil_char_boundary(surplus);
                text.drain(..cut);
            }),
        }
    }
}

impl DemoProcess {
    /// Waits until the process has started.
    pub(super) async fn started(&mut self) -> Result<&ProcessIdentity, CliError> {
        let started = timeout(START_MAX, self.process.handle().wait_started()).await;
        let started = started.with_context(|| format!("{} does not start", self.name))?;
        let identity = started.with_context(|| format!("{} does not start", self.name))?;
        Ok(self.identity.insert(identity))
    }

    /// Pid of the process; 0 before its start.
    pub(super) fn pid(&self) -> u32 {
        self.identity.as_ref().map_or(0, |identity| identity.pid)
    }

    /// Waits for an output line that begins with `begin`, and returns the rest of that line.
    pub(super) async fn line(&mut self, begin: &str, max: Duration) -> Result<String, CliError> {
        let rest = |text: &str| {
            let mut lines = text.split_inclusive('\n');
            let line = lines.find_map(|line| line.strip_prefix(begin)?.strip_suffix('\n'));
            line.map(str::to_owned)
        };
        let mut output = self.output.clone();
        let said = timeout(max, output.wait_for(|text| rest(text).is_some())).await;
        let found = match said {
            Ok(Ok(text)) => rest(&text),
            Ok(Err(_)) | Err(_) => None,
        };
        found.ok_or_else(|| self.failure(&format!("did not print {begin:?}")))
    }

    /// Error with the last line of the process's output.
    pub(super) fn failure(&self, what: &str) -> CliError {
        let output = self.output.borrow();
        let last = output.lines().last().unwrap_or("nothing");
        CliError::failure(format!("{} {what}; its last output: {last}", self.name))
    }

    /// True if the process has exited.
    pub(super) fn has_exited(&self) -> bool {
        self.process.handle().status().borrow().exited.is_some()
    }

    /// Sends a signal to the process itself, but not to the processes that it has started.
    pub(super) fn signal(&self, sent: ProcessSignal) {
        if let Some(identity) = &self.identity {
            // The process may have ended already, so an error is ignored. Callers wait for the end of the process
            // instead.
            drop(signal(identity, sent));
        }
    }

    /// Waits until the process and all processes that it has started are gone. The keeper gets this fact from the
    /// kernel. The wait itself sends no signal.
    pub(super) async fn gone(&self, max: Duration) -> Result<ExitInfo, CliError> {
        let handle = self.process.handle();
        let gone = async {
            let exit = handle.wait_exited().await;
            handle.wait_empty().await.and(exit)
        };
        let left = || self.failure(&format!("has processes left after {max:?}"));
        let exit = timeout(max, gone).await.map_err(|_elapsed| left())?;
        exit.map_err(|_| left())
    }

    /// Processes of the process tree, including the process itself.
    pub(super) async fn tree(&self) -> Vec<TreeMember> {
        self.process.members().await
    }
}
