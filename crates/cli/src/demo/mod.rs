//! `allstop demo`: stops a turn with many kinds of work that is hard to stop, and proves the result with facts from
//! outside Allstop.
//!
//! The model is scripted, but the work is real. The proofs come from `/proc` and from the server at the other end of
//! the connection, never from Allstop's own records.

#[cfg_attr(not(feature = "nats"), path = "no_cluster.rs")]
mod cluster;
mod parts;
mod proof;
mod report;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use allstop_agent::{
    Agent, AgentEvent, EventSink, RunHistory, RunRequest, SessionBackground, TurnOutcome,
};
use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, Receipt, SessionId, StopReason, Timestamp};
use allstop_log::{MemoryLog, SessionWriter};
use allstop_model::{Reply, ScriptedModel};
use allstop_scope::{GRACE_DEFAULT, RootOptions, Scope, ScopeOptions, Stop, StopRequest, WorkSpec};
use allstop_tools::{
    BackgroundHost, OutputFolder, ShellConfig, ToolRegistry, Workspace, builtin_tools,
};
use anyhow::Context as _;
use serde_json::json;

use crate::args::DemoArgs;
use crate::control::{Control, ControlEffect};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::ProcessHost;
use crate::signals::EndSignals;
use parts::{BlockThreadTool, ReadStreamTool, StalledServer};
use proof::{DemoChecks, DemoProof};
use report::DemoReport;

/// Time limit of the demo. If something hangs, the demo reports the timeout and fails.
const DEMO_MAX: Duration = Duration::from_secs(15);

/// Maximum time to remove the temporary folder. This can take time: the folder contains the large stores of the NATS
/// servers, and the disk can be busy.
const REMOVE_MAX: Duration = Duration::from_secs(5);

/// Maximum wait for output after a signal.
const OUTPUT_WAIT_MAX: Duration = Duration::from_millis(100);

/// Runs the demo. The exit code is 0 only if every proof of the demo holds. A signal stops all work.
pub(crate) async fn demo(args: DemoArgs, host: &ProcessHost) -> Result<Exit, CliError> {
    let mut signals = host.signals()?;
    let folder = DemoFolder::make().context("cannot create a temporary folder")?;
    let root = Scope::root("process", host.scopes());
    let mut report = DemoReport::new(host, args.json);
    let mut control = Control::new(GRACE_DEFAULT);
    let max = if args.cluster {
        cluster::CLUSTER_DEMO_MAX
    } else {
        DEMO_MAX
    };
    let played = {
        let playing = async {
            if args.cluster {
                let program = args.nats_server.as_deref();
                Box::pin(cluster::play(host, &root, &folder, &mut report, program)).await
            } else {
                Box::pin(play(host, &root, folder.path(), &mut report, args.wedged)).await
            }
        };
        tokio::select! {
            biased;
            signal = signals.next() => Err(control.signal(signal, Instant::now())),
            played = tokio::time::timeout(max, playing) => Ok(played.unwrap_or_else(|_elapsed| {
                let seconds = max.as_secs();
                Err(CliError::failure(format!("the demo was not over within {seconds} s")))
            })),
        }
    };
    let exit = match played {
        Ok(Ok(ok)) => {
            report.end(ok);
            Ok(Exit::from(u8::from(!ok)))
        }
        Ok(Err(error)) => {
            // All work must end before the demo's folder is removed.
            let cause = Cause::new(CauseKind::Failure).detail("the demo failed");
            let stop = root.stop(StopRequest::new(Extent::Process, cause));
            end_of(&stop, &mut signals, &mut control).await;
            if args.json {
                report.end(false);
            }
            Err(error)
        }
        Err(effect) => {
            if let ControlEffect::Stop(cause) = effect {
                let stop = root.stop(StopRequest::new(Extent::Process, cause));
                let receipt = end_of(&stop, &mut signals, &mut control).await;
                report.receipt(&receipt);
            }
            report.stopped();
            Ok(Exit {
                code: control.exit_code(control.stop_reason()),
                output_wait: Some(OUTPUT_WAIT_MAX),
            })
        }
    };
    host.keepers.close();
    if let Err(why) = folder.remove().await {
        report.left(&why);
    }
    exit
}

/// Waits for the receipt of a stop: the list of the stopped work, and of work that still runs. Another signal forces
/// the stop.
async fn end_of(stop: &Stop, signals: &mut EndSignals, control: &mut Control) -> Arc<Receipt> {
    let receipt = stop.receipt();
    tokio::pin!(receipt);
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => if let ControlEffect::Force(_) = control.signal(signal, Instant::now()) {
                stop.force();
            },
            receipt = &mut receipt => return receipt,
        }
    }
}

async fn play(
    host: &ProcessHost,
    root: &Scope,
    folder: &Path,
    report: &mut DemoReport<'_>,
    wedged: bool,
) -> Result<bool, CliError> {
    let server = StalledServer::start()
        .await
        .context("cannot start a server on 127.0.0.1")?;
    let checks = DemoChecks::new(server.port());
    let stage = DemoStage::open(host, root, folder, &checks, &server, wedged).await?;

    report.field("next_answer", "");
    report.field("stop_ms", ());
    report.print("one turn starts: a quick tool, a background shell, and then at the same time");
    report
        .print("  a shell tree that ignores SIGTERM and has a grandchild in its own Unix session,");
    report.print("  an HTTP stream that stalls, and a blocking thread");
    let (outcome, history, before) = stage.run_and_stop(&checks, report).await?;
    let receipt = outcome
        .receipt
        .clone()
        .context("the stopped turn has no receipt")?;
    report.receipt(&receipt);

    report.print("remaining work, according to /proc and the server:");
    let mut proofs = checks.after_the_stop(&before, &server).await;
    proofs.push(DemoProof::of(
        "the conversation is the same as before the turn",
        history.conversation().messages.len() as u64,
        0,
    ));
    let mut ok =
        report.proofs(proofs) && outcome.stop_reason == StopReason::Cancelled && receipt.quiet();

    report.print("the next message of the same session:");
    let run = stage.agent.start(
        &stage.session,
        stage.request(history, "and now?"),
        EventSink::none(),
    );
    let next = run.finish().await.context("the engine")?;
    let answer = next.turns.last().context("a turn")?;
    report.field("next_answer", &*answer.output);
    report.print(format!("  {}", answer.output));
    ok &= answer.stop_reason == StopReason::Completed;

    report.print("the end: the background shell is stopped too");
    let stop = StopRequest::new(
        Extent::Process,
        Cause::new(CauseKind::Parent).detail("the demo is over"),
    );
    let last: Arc<Receipt> = root.stop(stop).await;
    ok &= last.quiet();
    // Idle keepers (the parent processes of commands) wait for another command, so close them.
    host.keepers.close();
    ok &= report.proofs(checks.after_the_end());
    Ok(ok)
}

/// The session of the demo, and the agent in this session.
struct DemoStage {
    agent: Agent,
    session: Scope,
    background: Arc<SessionBackground>,
    history: std::cell::Cell<Option<RunHistory>>,
}

impl DemoStage {
    async fn open(
        host: &ProcessHost,
        root: &Scope,
        folder: &Path,
        checks: &DemoChecks,
        server: &StalledServer,
        wedged: bool,
    ) -> Result<Self, CliError> {
        let id = SessionId::from("demo");
        let now = Timestamp::from(std::time::SystemTime::now());
        let log = Arc::new(MemoryLog::new());
        let writer = SessionWriter::create(log, id, now, folder.to_string_lossy(), None)
            .await
            .context("a session in memory")?;
        let session = root
            .child("session/demo", ScopeOptions::default())
            .context("a scope for the session")?;
        let below = session
            .child("session/demo/background", ScopeOptions::default())
            .context("a scope for background work")?;
        let background = SessionBackground::new(below, 1, Box::new(Vec::new));
        let workspace =
            Arc::new(Workspace::new(folder).context("cannot use the temporary folder")?);
        let mut shell = ShellConfig::new(folder, Arc::new(OutputFolder::new(folder)));
        shell.containment = host.scopes().containment;
        let shared: Arc<dyn BackgroundHost> = Arc::clone(&background) as _;
        let mut tools = ToolRegistry::new();
        for tool in builtin_tools(&workspace, shell, &shared) {
            tools.register(tool).context("a built-in tool")?;
        }
        tools
            .register(Arc::new(ReadStreamTool::new(server.port())))
            .context("fetch")?;
        tools
            .register(Arc::new(BlockThreadTool::new(wedged)))
            .context("crunch")?;
        let model =
            Arc::new(ScriptedModel::in_order_of_calls(script(checks)).with_name("script::demo"));
        Ok(Self {
            agent: Agent::new(model).tools(tools).build(),
            session,
            background,
            history: std::cell::Cell::new(Some(RunHistory::Logged(Box::new(writer)))),
        })
    }

    fn request(&self, history: RunHistory, prompt: &str) -> RunRequest {
        RunRequest::new(history, prompt).background(Arc::clone(&self.background))
    }

    /// Runs the turn until all its work has started, and then stops the turn.
    async fn run_and_stop(
        &self,
        checks: &DemoChecks,
        report: &mut DemoReport<'_>,
    ) -> Result<(TurnOutcome, RunHistory, proof::ProcessCounts), CliError> {
        let history = self.history.take().context("the demo has one first turn")?;
        let (sink, mut events) = EventSink::channel();
        let mut run = self.agent.start(
            &self.session,
            self.request(history, "do everything at once"),
            sink,
        );
        let before = loop {
            tokio::select! {
                event = events.recv() => if let Ok(AgentEvent::ToolFinished { name, after_ms, .. }) = event {
                    report.print(format!("  {name} has finished after {after_ms} ms"));
                },
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            if let Some(before) = checks.count_running_work() {
                break before;
            }
        };
        report.running(&before);
        report.print("stop the turn:");
        let began = Instant::now();
        let cause = Cause::new(CauseKind::User)
            .detail("the demo's stop")
            .by("demo");
        let order = StopRequest::new(Extent::Turn, cause).bystander(&self.background.scope());
        let _answered_below = run.scope().stop(order);
        let mut outcome = run.wait().await.context("the engine")?;
        let elapsed = began.elapsed();
        report.field("stop_ms", elapsed.as_millis() as u64);
        report.conclude(format!("nothing is left; the stop took {elapsed:.1?}"));
        let turn = outcome.turns.pop().context("a turn")?;
        Ok((turn, outcome.history, before))
    }
}

/// Script of the model. The duration of each `sleep` command contains a number that only this demo uses. So the checks
/// count no other `sleep` processes.
fn script(checks: &DemoChecks) -> Vec<Reply> {
    let tree = checks.sleep(proof::TREE);
    vec![
        Reply::text("First the quick ones.")
            .call("list", json!({}))
            .call("shell", json!({"command": format!("exec {}", checks.sleep(proof::BACKGROUND)), "background": true})),
        Reply::text("Now all the slow ones at once.")
            .call("shell", json!({"command": format!("trap '' TERM; setsid {tree} & {tree} & wait")}))
            .call("fetch", json!({}))
            .call("crunch", json!({})),
        Reply::text("Ready. Nothing of the stopped turn is in the way."),
    ]
}

/// A temporary folder that is removed at the end.
struct DemoFolder(std::path::PathBuf);

impl DemoFolder {
    fn make() -> std::io::Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.subsec_nanos());
        let name = format!("allstop-demo-{}-{nanos}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // An existing folder belongs to another program, and must cause an error.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the folder. The wait is limited, because a disk may hang.
    ///
    /// # Errors
    /// If the folder was not removed. The message names the folder.
    async fn remove(&self) -> Result<(), String> {
        let path = self.0.clone();
        if !path.exists() {
            return Ok(());
        }
        let scope = Scope::root("folder", RootOptions::current());
        let spec = WorkSpec::new(ItemKind::Thread, "folder");
        let removing = scope.spawn_blocking(spec, move |_| std::fs::remove_dir_all(path));
        let why = match removing {
            Ok(removing) => match tokio::time::timeout(REMOVE_MAX, removing).await {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(_stopped)) => "the removal was stopped".to_owned(),
                Err(_elapsed) => format!("the removal takes longer than {REMOVE_MAX:?}"),
            },
            Err(_stopped) => "the removal was stopped".to_owned(),
        };
        Err(format!(
            "cannot remove the temporary folder {}: {why}",
            self.0.display()
        ))
    }
}
