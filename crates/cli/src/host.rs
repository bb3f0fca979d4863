//! Environment variables, home folder, other folders, runtimes and output of the process. Apart from clap, only this
//! module reads the environment.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use allstop_core::process::ProcessIdentity;
use allstop_model::provider::KeyLookup;
use allstop_process::{ContainmentChoice, KeeperProgram, Keepers, identity_of};
use allstop_remote::SocketFolder;
use allstop_runtime::UserFolders;
use allstop_runtime::{StoreChoice, is_secret_variable};
use allstop_scope::RootOptions;
use allstop_terminal::{Environment, OutputPriority, OutputStreams, Styled, TextRole};
use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

use crate::args::{CliCommand, StoreArgs, TRACE_FILE};
use crate::closed_output::stdout_was_closed;
use crate::descriptors;
use crate::error::{CliError, ErrorForm};
use crate::output_file::redirect_stdout;
use crate::project_trust::TrustStore;
use crate::resources;
use crate::serve::cluster::names_servers;
use crate::signals::{EndSignals, InheritedSignals};
use crate::telemetry::{self, TraceExporter};

/// First argument of a keeper: a small process of this program that starts a shell command and can kill the command's
/// whole process tree. The help does not list this internal command.
pub(crate) const KEEPER_COMMAND: &str = "__keeper";

/// Minimum number of work threads. A tool that blocks its thread must not delay other tools. The engines, which drive
/// the turns, do not run on these threads.
const WORK_THREADS_MIN: usize = 4;

/// Environment variables with the headers for a collector of traces, which authenticate this process.
const COLLECTOR_KEYS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];

/// Environment of the process.
#[derive(Debug)]
pub(crate) struct ProcessHost {
    /// Start time of the process, from which `--timeout` counts.
    pub(crate) started: Instant,
    /// Signal settings from the parent process.
    signals: InheritedSignals,
    /// Standard output and standard error.
    pub(crate) output: OutputStreams,
    /// File that replaces standard output because of `--output`.
    pub(crate) output_file: Option<PathBuf>,
    /// True if only errors and questions go to standard error.
    pub(crate) is_quiet: bool,
    /// True if the command prints a result, but standard output was closed at the start.
    pub(crate) is_result_lost: bool,
    /// Terminal settings from the environment.
    pub(crate) terminal: Environment,
    /// The working directory.
    pub(crate) folder: PathBuf,
    /// Folder of the sockets through which other terminals stop sessions.
    pub(crate) sockets: SocketFolder,
    /// Runtime of the main thread, for signals, the exit time and the views. The main thread has its own clock, so a
    /// busy thread elsewhere cannot delay the exit.
    main: Runtime,
    /// Runtime of the engines and of the ladders (the steps of stops). With two threads, a computing engine does not
    /// delay a ladder.
    control: Runtime,
    /// Runtime of tools and hooks, which may block their threads.
    work: Runtime,
    /// Exporter of traces, if enabled.
    pub(crate) traces: Option<TraceExporter>,
    /// Keepers of shell commands. If a keeper is killed, this process adopts the processes of its tree.
    pub(crate) keepers: Arc<Keepers>,
}

impl ProcessHost {
    /// Opens the output, the runtimes and the folders of this process. The output file, if any, replaces standard
    /// output.
    pub(crate) fn of_process(
        signals: InheritedSignals,
        output_file: Option<&Path>,
    ) -> Result<Self, CliError> {
        let started = Instant::now();
        let descriptors = descriptors::raise();
        if let Some(path) = output_file {
            redirect_stdout(path)?;
        }
        let output = OutputStreams::of_process().context("cannot use standard output and error")?;
        let folder = std::env::current_dir().map_err(|error| {
            CliError::usage(format!("the working directory cannot be used: {error}"))
                .hint("change to an existing folder")
        })?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = |threads: usize, name: &str| {
            Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name(name)
                .enable_all()
                .build()
                .context("cannot start threads")
        };
        let keepers = Keepers::with_subreaper(KeeperProgram {
            executable: "/proc/self/exe".into(),
            args: std::iter::once(KEEPER_COMMAND.into())
                .chain(descriptors.map(|limit| limit.to_string().into()))
                .collect(),
        })
        .context("cannot adopt the orphaned processes of commands")?;
        keepers.limit_commands(descriptors::commands_max());
        Ok(Self {
            started,
            signals,
            output,
            output_file: output_file.map(Path::to_owned),
            is_quiet: false,
            is_result_lost: false,
            terminal: Environment::read(variable),
            folder,
            sockets: SocketFolder::of_user(variable("XDG_RUNTIME_DIR").map(PathBuf::from)),
            main: Builder::new_current_thread()
                .enable_all()
                .build()
                .context("cannot start the main loop")?,
            control: runtime(2, "allstop-control")?,
            work: runtime(cores.max(WORK_THREADS_MIN), "allstop-pool")?,
            traces: None,
            keepers,
        })
    }

    /// Checks that this command can do its work here, before it does anything.
    ///
    /// # Errors
    /// If a part of the system is missing, or the result would be lost.
    pub(crate) fn check(mut self, command: &CliCommand) -> Result<Self, CliError> {
        if command.runs_agents() {
            resources::check_proc()?;
        }
        let lacks_stdout = self.output_file.is_none() && stdout_was_closed();
        if lacks_stdout && command.error_form() == ErrorForm::Envelope {
            return Err(Self::lost_stdout());
        }
        self.is_result_lost = lacks_stdout && command.prints_result();
        Ok(self)
    }

    /// Opens the exporter of traces, if the flags of the command or the environment name a collector.
    ///
    /// # Errors
    /// If the URL of the collector is invalid, or the file for the traces cannot be opened.
    pub(crate) fn traced(mut self, command: &CliCommand) -> Result<Self, CliError> {
        if let Some(args) = command.traces() {
            let stderr = self.output.stderr().clone();
            let file = Self::trace_file().filter(|_| command.serves_programs());
            self.traces = telemetry::open(args, file, stderr)?;
        }
        Ok(self)
    }

    /// File for the traces, which the SDKs for Copilot name in the environment; `None` if they name another exporter.
    fn trace_file() -> Option<PathBuf> {
        let exporter = Self::text_variable("COPILOT_OTEL_EXPORTER_TYPE");
        let is_file = exporter.is_none_or(|exporter| exporter == "file");
        Self::text_variable(TRACE_FILE)
            .filter(|_| is_file)
            .map(PathBuf::from)
    }

    /// Error for a closed standard output.
    pub(crate) fn lost_stdout() -> CliError {
        CliError::failure("standard output is closed, so the result is lost").hint(
            "redirect it to a file (> FILE, or --output FILE of `run`), or discard it (> /dev/null)",
        )
    }

    /// Sets whether only errors and questions go to standard error.
    #[must_use]
    pub(crate) fn quiet(mut self, is_quiet: bool) -> Self {
        self.is_quiet = is_quiet;
        self
    }

    /// Installs handlers for the signals that end runs.
    ///
    /// # Errors
    /// If no file descriptor is free.
    pub(crate) fn signals(&self) -> anyhow::Result<EndSignals> {
        EndSignals::install(self.signals)
    }

    /// Runs a command on the main thread.
    pub(crate) fn block_on<T>(&self, command: impl Future<Output = T>) -> T {
        self.main.block_on(command)
    }

    /// Runtimes, clocks and process containment for a tree of scopes, in which all work runs. Each shell command gets a
    /// keeper.
    pub(crate) fn scopes(&self) -> RootOptions {
        let _inside = self.control.enter();
        RootOptions::current()
            .control(self.control.handle().clone().into())
            .work(self.work.handle().clone().into())
            .containment(ContainmentChoice::Keeper(Arc::clone(&self.keepers)))
    }

    /// Path of this program.
    ///
    /// # Errors
    /// If the system does not provide it.
    pub(crate) fn program() -> anyhow::Result<PathBuf> {
        std::env::current_exe().context("cannot find the file of this program")
    }

    /// Identity of this process, for the log.
    pub(crate) fn owner() -> Option<ProcessIdentity> {
        identity_of(std::process::id())
    }

    /// Looks up API keys by the names of their environment variables.
    pub(crate) fn keys() -> KeyLookup {
        Arc::new(Self::text_variable)
    }

    /// Replaces the home folder at the beginning of a path by `~`.
    pub(crate) fn below_home(folder: &str) -> String {
        let home = Self::text_variable("HOME").filter(|home| home.starts_with('/') && home != "/");
        let below = home.and_then(|home| folder.strip_prefix(home.trim_end_matches('/')));
        match below {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
            _ => folder.to_owned(),
        }
    }

    /// Value of an environment variable; `None` if it is empty or not text.
    pub(crate) fn text_variable(name: &str) -> Option<String> {
        let value = variable(name)?.into_string().ok()?;
        (!value.is_empty()).then_some(value)
    }

    /// Environment variables that look like secrets. The model's commands and the MCP servers do not inherit these
    /// variables. The `configured` variables hold keys regardless of their names, and the URL in `ALLSTOP_BASE_URL` may
    /// contain a key in its query. So may the headers for a collector of traces.
    pub(crate) fn secret_variables(configured: &[&str]) -> Vec<OsString> {
        let is_secret = |name: &OsString, value: &OsString| {
            is_secret_variable(name, value)
                || name == "ALLSTOP_BASE_URL"
                || COLLECTOR_KEYS.iter().any(|key| name == key)
                || configured.iter().any(|configured| name == configured)
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the binary reads the environment"
        )]
        let variables = std::env::vars_os();
        variables
            .filter(|(name, value)| is_secret(name, value))
            .map(|(name, _)| name)
            .collect()
    }

    /// The user's own configuration file, used if no flag names one.
    pub(crate) fn config_file() -> Option<PathBuf> {
        Self::config_path().filter(|file| file.exists())
    }

    /// Path of the user's configuration file, even if the file does not exist; `None` if the home folder is unknown.
    pub(crate) fn config_path() -> Option<PathBuf> {
        Some(home_folder("XDG_CONFIG_HOME", ".config")?.join("allstop/allstop.toml"))
    }

    /// Folders with the definitions of the user.
    pub(crate) fn user_folders() -> UserFolders {
        UserFolders {
            config: home_folder("XDG_CONFIG_HOME", ".config").map(|config| config.join("allstop")),
            home: variable("HOME")
                .map(PathBuf::from)
                .filter(|home| home.is_absolute()),
        }
    }

    /// The stored trust decisions about project configurations.
    ///
    /// # Errors
    /// If no data folder can be determined.
    pub(crate) fn project_trust() -> Result<TrustStore, CliError> {
        Ok(TrustStore::new(data_folder()?.join("trusted")))
    }

    /// Folder for the tokens of logins at MCP servers; `None` if no data folder can be determined.
    pub(crate) fn login_folder() -> Option<PathBuf> {
        Some(data_folder().ok()?.join("logins"))
    }

    /// Path of the store: from the flag, else from the configuration, else in the user's data folder, which is created
    /// if it is missing.
    pub(crate) fn store(
        flag: &StoreArgs,
        configured: Option<PathBuf>,
    ) -> Result<StoreChoice, CliError> {
        if let Some(path) = flag.store.clone().or(configured) {
            if path.to_str().is_some_and(names_servers) {
                return Err(CliError::usage("this command needs a store on this machine").hint(
                    "name a file: --store sessions.db; only `serve`, `worker` and `workers` accept NATS servers",
                ));
            }
            // The path must be absolute: records contain it, and later commands use it in other working directories.
            let path = std::path::absolute(&path).unwrap_or(path);
            return Ok(StoreChoice::Sqlite(path));
        }
        let folder = data_folder()?;
        // The folder contains conversations.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("the folder {} cannot be created", folder.display()))
            .map_err(|error| CliError::from(error).hint("choose another file: --store FILE"))?;
        Ok(StoreChoice::Sqlite(folder.join("store.db")))
    }

    /// Folder for tool output that is too long for memory. A store file has this folder next to it.
    pub(crate) fn spill_folder(store: &StoreChoice) -> PathBuf {
        let beside = store.output_folder();
        beside.unwrap_or_else(|| std::env::temp_dir().join("allstop-output"))
    }

    /// Folder of the settings that clients of `allstop copilot` store. Tools must not write to it, because the settings name
    /// commands.
    pub(crate) fn client_settings_folder() -> Option<PathBuf> {
        data_folder().ok().map(|folder| folder.join("copilot"))
    }

    /// Prints a note to standard error, except under `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        let stderr = self.output.stderr();
        let style = self.terminal.style(stderr.is_terminal());
        let text = style.paint(TextRole::Dim, Styled::text(text));
        stderr.sentences(text, OutputPriority::Required);
    }

    /// Prints an error to standard error.
    pub(crate) fn print_problem(&self, problem: &CliError) {
        let stderr = self.output.stderr();
        let style = self.terminal.style(stderr.is_terminal());
        let text = style.failure(&problem.message, problem.hint.as_deref());
        stderr.sentences(text, OutputPriority::Required);
    }
}

/// Changes the working directory to the folder of `-C`.
///
/// # Errors
/// If the folder cannot be used.
pub(crate) fn change_folder(folder: Option<&Path>) -> Result<(), CliError> {
    let Some(folder) = folder else {
        return Ok(());
    };
    std::env::set_current_dir(folder).map_err(|error| {
        let folder = folder.display();
        CliError::usage(format!("cannot change to the folder `{folder}`: {error}"))
            .hint("name an existing folder: -C DIR")
    })
}

/// Names of the environment variables with this prefix.
pub(crate) fn variables_with_prefix(prefix: &str) -> Vec<OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    let variables = std::env::vars_os();
    variables
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with(prefix))
        .collect()
}

/// Value of an environment variable.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment"
    )]
    std::env::var_os(name)
}

fn data_folder() -> Result<PathBuf, CliError> {
    home_folder("XDG_DATA_HOME", ".local/share")
        .map(|folder| folder.join("allstop"))
        .ok_or_else(|| {
            CliError::usage("no folder for sessions: neither HOME nor XDG_DATA_HOME is set")
                .hint("name a file: --store FILE")
        })
}

/// A folder of the user: the value of the variable `named_by`, or else the path `below_home` in the home folder.
fn home_folder(named_by: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute(named_by).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}
