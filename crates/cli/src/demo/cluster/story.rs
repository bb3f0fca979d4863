//! Steps of the demo: failures and stops of workers and servers, and the checks after each step.

use std::fs;
use std::time::{Duration, Instant};

use allstop_core::CauseKind;
use allstop_core::process::ProcessIdentity;
use allstop_process::{ProcessSignal, identity_of};
use allstop_scope::Scope;
use anyhow::Context as _;
use serde_json::Value;

use super::super::proof::DemoProof;
use super::super::report::DemoReport;
use super::account::{proofs, tasks_in_log};
use super::evidence::{ledger, pid_in, processes_that_name, signs_of_life, still_alive};
use super::nats_program::NatsProgram;
use super::nats_servers::DemoNatsServers;
use super::process::DemoLauncher;
use super::script::{
    DemoFiles, FIRST_ENTRIES, LAST_ENTRY, LEASE_ENTRIES, SERVER_ENTRIES, STUBBORN, script,
};
use super::tasks::DemoTasks;
use super::wait::wait_for;
use super::workers::{DemoWorkers, LEASE};
use crate::error::CliError;
use allstop_core::elapsed::milliseconds;

/// Maximum wait for a task to run, or for a process to end.
const FACT_MAX: Duration = Duration::from_secs(15);

/// Maximum time from the kill of a worker to the end of its task, in addition to the worker's lease. After the lease,
/// another worker takes over.
const TAKE_OVER_MAX: Duration = Duration::from_secs(2);

/// The running demo.
pub(super) struct DemoStory<'a, 'r> {
    report: &'a mut DemoReport<'r>,
    files: DemoFiles,
    servers: DemoNatsServers,
    workers: DemoWorkers,
    tasks: DemoTasks,
    /// Every process that the demo has seen.
    seen: Vec<ProcessIdentity>,
}

impl<'a, 'r> DemoStory<'a, 'r> {
    /// Starts servers, front end and workers.
    pub(super) async fn begin(
        launcher: DemoLauncher,
        program: &NatsProgram,
        version: &str,
        report: &'a mut DemoReport<'r>,
    ) -> Result<Self, CliError> {
        report.title(
            "three NATS servers, three workers and a front end start on loopback addresses:",
        );
        let began = Instant::now();
        let files = DemoFiles::new(launcher.folder());
        fs::write(files.script(), script(&files))
            .context("cannot write the script of the model")?;
        let servers = DemoNatsServers::start(&launcher, program).await?;
        for server in &servers.servers {
            let (name, pid, address) = (&server.process.name, server.process.pid(), server.client);
            report.print(format!(
                "  {name:<9}  pid {pid:<7}  {address}, nats-server {version}"
            ));
        }
        let workers = DemoWorkers::start(&launcher, &files, &servers.urls()).await?;
        let (pid, address) = (workers.front.pid(), &workers.address);
        report.print(format!("  front end  pid {pid:<7}  {address}"));
        for worker in &workers.workers {
            let (name, pid, lease) = (&worker.name, worker.pid(), LEASE.as_secs());
            report.print(format!("  {name:<9}  pid {pid:<7}  lease {lease} s"));
        }
        let ready = describe_duration(began.elapsed());
        report.print(format!("  all are ready after {ready}"));
        let tasks = DemoTasks::new(&workers.address)?;
        Ok(Self {
            report,
            files,
            servers,
            workers,
            tasks,
            seen: Vec::new(),
        })
    }

    /// Sends tasks of both kinds: stubborn tasks, whose shells ignore SIGTERM, and short tasks. Waits until the
    /// stubborn tasks run and the short tasks have completed.
    pub(super) async fn run_tasks(&mut self) -> Result<(), CliError> {
        let [first, second, _] = STUBBORN;
        self.report.title("six tasks are sent to the front end:");
        for name in [first, second].into_iter().chain(FIRST_ENTRIES) {
            self.tasks.send(name).await?;
        }
        for name in [first, second] {
            let (worker, shell) = self.wait_for_worker_and_shell(name).await?;
            let worker = self
                .workers
                .workers
                .get(worker)
                .map_or("", |worker| &worker.name);
            let pid = shell.pid;
            self.report.print(format!(
                "  {name} runs at {worker}: shell {pid}, which ignores SIGTERM"
            ));
        }
        let done = self.completed(&FIRST_ENTRIES).await?;
        self.prove([DemoProof::of(
            "tasks that wrote a line into the ledger, completed",
            done,
            FIRST_ENTRIES.len() as u64,
        )]);
        self.record_processes().await;
        Ok(())
    }

    /// Stops a task that runs at a worker, with a request to the front end.
    pub(super) async fn stop_a_task(&mut self) -> Result<(), CliError> {
        let [name, ..] = STUBBORN;
        let (worker, shell) = self.wait_for_worker_and_shell(name).await?;
        let worker = self.workers.workers.get(worker);
        let worker = worker.map_or_else(String::new, |worker| worker.name.clone());
        let before = processes_that_name(&self.files.mark(name));
        self.report
            .title(&format!("stop {name} at {worker}, through the front end:"));
        let began = Instant::now();
        let end = self.tasks.stop(name).await?;
        let took = began.elapsed();
        self.report.field("stop_ms", took.as_millis() as u64);
        let receipt = end.receipt.context("the stop has no receipt")?;
        self.report.receipt(&receipt);
        self.report.print(format!(
            "  the answer took {}; seen from outside:",
            describe_duration(took)
        ));
        let mut proofs = vec![DemoProof::of(
            "receipts that report the task as quiet",
            u64::from(receipt.quiet() && end.state == "canceled"),
            1,
        )];
        proofs.extend(self.prove_task_gone(name, &shell, before).await);
        self.prove(proofs);
        Ok(())
    }

    /// Kills a worker that runs a task.
    pub(super) async fn kill_a_worker(&mut self) -> Result<(), CliError> {
        let [_, name, _] = STUBBORN;
        let (place, shell) = self.wait_for_worker_and_shell(name).await?;
        let before = processes_that_name(&self.files.mark(name));
        let worker = self.workers.workers.remove(place);
        let (killed, pid) = (&worker.name, worker.pid());
        self.report
            .title(&format!("kill -9 {pid}: {killed}, which runs {name}:"));
        let began = Instant::now();
        worker.signal(ProcessSignal::Kill);
        worker.gone(FACT_MAX).await?;
        let gone = began.elapsed();
        self.report.print(format!(
            "  its last process was gone {} later; only the worker was signalled",
            describe_duration(gone)
        ));
        let proofs = self.prove_task_gone(name, &shell, before).await;
        self.prove(proofs);
        for entry in LEASE_ENTRIES {
            self.tasks.send(entry).await?;
        }
        let done = self.completed(&LEASE_ENTRIES).await?;
        self.prove([DemoProof::of(
            "new tasks, completed by the other workers",
            done,
            LEASE_ENTRIES.len() as u64,
        )]);
        let (end, _) = self.tasks.end(name, LEASE + FACT_MAX).await?;
        let took = began.elapsed();
        self.report.field("take_over_ms", took.as_millis() as u64);
        let cause = end.cause.as_ref();
        let is_crash = cause.is_some_and(|cause| {
            cause.kind == CauseKind::Failure && cause.detail.as_deref() == Some("crash")
        });
        self.report.explain(format!(
            "{} after the kill, {name} has its end: {}",
            describe_duration(took),
            end.describe()
        ));
        self.prove([
            DemoProof::of(
                "tasks of the killed worker that failed with the detail crash",
                u64::from(is_crash && end.state == "failed"),
                1,
            ),
            DemoProof::of(
                format!("ends within the lease and {} s", TAKE_OVER_MAX.as_secs()),
                u64::from(took <= LEASE + TAKE_OVER_MAX),
                1,
            ),
        ]);
        Ok(())
    }

    /// Kills the NATS server that leads the stream of the records, while tasks run.
    pub(super) async fn kill_a_server(&mut self) -> Result<(), CliError> {
        let [.., name] = STUBBORN;
        self.tasks.send(name).await?;
        let (_, shell) = self.wait_for_worker_and_shell(name).await?;
        for entry in SERVER_ENTRIES {
            self.tasks.send(entry).await?;
        }
        // Wait until the shells of these tasks run. Then the work of the tasks no longer depends on the servers.
        for entry in SERVER_ENTRIES {
            self.wait_for_worker_and_shell(entry).await?;
        }
        let fact = "the servers name a leader";
        let look = async || self.servers.leader().await;
        let (leader, _) = wait_for(fact, FACT_MAX, look).await?;
        let server = self.servers.servers.get(leader).context("a leader")?;
        let (killed, pid) = (&server.process.name, server.process.pid());
        self.report.title(&format!(
            "kill -9 {pid}: {killed}, the leader of all records, while 3 tasks run:"
        ));
        let began = Instant::now();
        server.process.signal(ProcessSignal::Kill);
        server.process.gone(FACT_MAX).await?;
        self.tasks.send(LAST_ENTRY).await?;
        let accepted = began.elapsed();
        self.report
            .field("accepted_after_server_loss_ms", accepted.as_millis() as u64);
        let new = self.servers.leader().await;
        let new = new.and_then(|at| self.servers.servers.get(at));
        let new = new.map_or("another server", |server| &server.process.name);
        self.report.print(format!(
            "  {new} leads now; a new task was accepted {} after the kill",
            describe_duration(accepted)
        ));
        let old = self.completed(&SERVER_ENTRIES).await?;
        let new = self.completed(&[LAST_ENTRY]).await?;
        let alive = signs_of_life(&self.files.alive(name)).await;
        let same = still_alive(std::slice::from_ref(&shell));
        let count = SERVER_ENTRIES.len() as u64;
        self.prove([
            DemoProof::of("tasks acknowledged before the kill, completed", old, count),
            DemoProof::of("new tasks, completed", new, 1),
            DemoProof::of(
                format!(
                    "{name} in the same shell, {}, with signs of life",
                    shell.pid
                ),
                alive.min(same),
                1,
            ),
        ]);
        self.record_processes().await;
        Ok(())
    }

    /// Ends the workers. One of them still runs a task.
    pub(super) async fn end_workers(&mut self) -> Result<(), CliError> {
        let [.., name] = STUBBORN;
        let (_, shell) = self.wait_for_worker_and_shell(name).await?;
        let before = processes_that_name(&self.files.mark(name));
        self.report
            .title(&format!("SIGTERM to both workers; {name} still runs:"));
        for worker in &self.workers.workers {
            worker.signal(ProcessSignal::Term);
        }
        for worker in &self.workers.workers {
            worker.gone(FACT_MAX).await?;
        }
        let (end, _) = self.tasks.end(name, FACT_MAX).await?;
        self.report
            .explain(format!("{name} has ended: {}", end.describe()));
        let quiet = end.receipt.is_some_and(|receipt| receipt.quiet());
        let mut proofs = vec![DemoProof::of(
            "receipts of its end that report it as quiet",
            u64::from(quiet),
            1,
        )];
        proofs.extend(self.prove_task_gone(name, &shell, before).await);
        self.prove(proofs);
        Ok(())
    }

    /// Compares the list, the log and the ledger: every task must have exactly one end, and no work may be done twice.
    pub(super) async fn account(&mut self, root: &Scope) -> Result<(), CliError> {
        self.report
            .title("every task is accounted for, by list, log and ledger:");
        let listed = self.tasks.listed().await?;
        let in_log = tasks_in_log(root, &self.servers.urls()).await?;
        let ledger = ledger(&self.files.ledger());
        let proofs = proofs(&self.tasks.sent, &listed, &in_log, &ledger);
        self.prove(proofs);
        let of_state = |state: &str| {
            let ended = listed.iter().filter_map(|(_, ended)| ended.as_deref());
            ended.filter(|ended| *ended == state).count()
        };
        self.report.print(format!(
            "  {} completed, {} stopped, {} failed",
            of_state("completed"),
            of_state("canceled"),
            of_state("failed")
        ));
        let tasks: Vec<Value> = self.tasks.sent.iter().map(Value::from).collect();
        self.report.field("tasks", tasks);
        Ok(())
    }

    /// Ends the front end and the servers. Returns every process that the demo has seen.
    pub(super) async fn end_all(mut self) -> Result<Vec<ProcessIdentity>, CliError> {
        self.record_processes().await;
        self.report
            .title("SIGTERM to the front end, then to the servers. Remaining work:");
        self.workers.front.signal(ProcessSignal::Term);
        self.workers.front.gone(FACT_MAX).await?;
        let servers = self.servers.servers.iter();
        let running: Vec<_> = servers.filter(|server| server.runs()).collect();
        for server in &running {
            server.process.signal(ProcessSignal::Term);
        }
        for server in running {
            server.process.gone(FACT_MAX).await?;
        }
        Ok(self.seen)
    }

    fn prove(&mut self, proofs: impl Into<Vec<DemoProof>>) {
        self.report.proofs(proofs.into());
    }

    /// Waits until these tasks have ended, and returns the number of completed tasks. Prints the names of the other
    /// tasks.
    async fn completed(&mut self, names: &[&'static str]) -> Result<u64, CliError> {
        let ends = self.tasks.ends(names, FACT_MAX).await?;
        for (name, end) in &ends {
            if !end.is_completed() {
                let said = end.describe();
                self.report.explain(format!("{name} has ended: {said}"));
            }
        }
        let completed = ends.iter().filter(|(_, end)| end.is_completed());
        Ok(completed.count() as u64)
    }

    /// Waits until a task runs. Returns the index of its worker, and the identity of its shell process.
    async fn wait_for_worker_and_shell(
        &mut self,
        name: &str,
    ) -> Result<(usize, ProcessIdentity), CliError> {
        let look = async || {
            let pid = pid_in(&self.files.pid(name))?;
            let worker = self.workers.of_process(pid).await?;
            Some((worker, identity_of(pid)?))
        };
        let fact = format!("the shell of {name} runs");
        Ok(wait_for(&fact, FACT_MAX, look).await?.0)
    }

    /// Proofs that a stubborn task's processes are gone.
    async fn prove_task_gone(
        &self,
        name: &str,
        shell: &ProcessIdentity,
        before: u64,
    ) -> [DemoProof; 3] {
        [
            DemoProof::of(
                format!("shell {} of {name}, alive", shell.pid),
                still_alive(std::slice::from_ref(shell)),
                0,
            ),
            DemoProof::of(
                format!("processes that name its file ({before} before)"),
                processes_that_name(&self.files.mark(name)),
                0,
            ),
            DemoProof::of(
                "signs of life in 0.3 s",
                signs_of_life(&self.files.alive(name)).await,
                0,
            ),
        ]
    }

    /// Records every process of the demo that runs now.
    async fn record_processes(&mut self) {
        let workers = self.workers.workers.iter();
        let servers = self.servers.servers.iter().map(|server| &server.process);
        for process in workers.chain(servers).chain([&self.workers.front]) {
            for member in process.tree().await {
                if !self.seen.contains(&member.identity) {
                    self.seen.push(member.identity);
                }
            }
        }
    }
}

fn describe_duration(duration: Duration) -> String {
    milliseconds(duration.as_secs_f64() * 1_000.0)
}
