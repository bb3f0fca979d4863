//! The ledger: a tool that receives the side effects of the tasks. Before each side effect, an execution sends a
//! question to the ledger. The ledger accepts an effect only from the execution that owns the task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use allstop_core::{TaskId, Timestamp};
use allstop_process::all_processes;
use allstop_task::TaskManager;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::ledger_client::LedgerQuestion;
use super::work::CHILD;

/// A question that the ledger received from an execution.
#[derive(Debug, Clone)]
pub(crate) struct LedgerEntry {
    pub question: LedgerQuestion,
    pub at: Timestamp,
    pub is_accepted: bool,
}

/// All received questions of each task, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct LedgerBook {
    pub entries: BTreeMap<TaskId, Vec<LedgerEntry>>,
    /// Tasks that were stopped with a quiet receipt (no work runs any more), with the time of this answer.
    pub quiet: BTreeMap<TaskId, Timestamp>,
    pub violations: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    manager: TaskManager,
    book: Arc<Mutex<LedgerBook>>,
}

pub(crate) async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

impl Ledger {
    pub(crate) fn new(manager: TaskManager) -> Self {
        Self {
            manager,
            book: Arc::default(),
        }
    }

    /// Answers questions, and never returns.
    pub(crate) async fn serve(&self, listener: TcpListener) -> ! {
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (connection, _) = accepted.expect("a connection");
                    answers.push(self.answer(connection));
                }
                // The result is not needed: a killed worker does not wait for its answer.
                Some(_) = answers.next() => {}
            }
        }
    }

    async fn answer(&self, connection: TcpStream) -> std::io::Result<()> {
        let mut connection = BufReader::new(connection);
        let mut line = String::new();
        connection.read_line(&mut line).await?;
        let question: LedgerQuestion = serde_json::from_str(&line)?;
        let at = Timestamp::from(SystemTime::now());
        let is_accepted = self.is_owner(&question).await;
        if question.step.is_none() && is_accepted {
            self.check_earlier_children(&question);
        }
        let entry = LedgerEntry {
            question: question.clone(),
            at,
            is_accepted,
        };
        self.book
            .lock()
            .entries
            .entry(question.task)
            .or_default()
            .push(entry);
        connection
            .write_all(format!("{is_accepted}\n").as_bytes())
            .await
    }

    /// Reads the log after the question has arrived. True if the log shows that the execution of the question owns the
    /// task. If the log is not available, the ledger accepts no effect.
    async fn is_owner(&self, question: &LedgerQuestion) -> bool {
        let task = self.manager.get(&question.task).await;
        let is_owner = task.is_ok_and(|task| task.is_executing && task.epoch == question.epoch);
        let book = self.book.lock();
        let known = book.entries.get(&question.task);
        let is_newest = known.is_none_or(|known| {
            let newer =
                |entry: &LedgerEntry| entry.is_accepted && entry.question.epoch > question.epoch;
            !known.iter().any(newer)
        });
        is_owner && is_newest
    }

    /// At the start of an execution, checks that the processes of earlier executions have ended.
    fn check_earlier_children(&self, question: &LedgerQuestion) {
        let children = children_of(&question.task).into_iter();
        for epoch in children.filter(|epoch| *epoch < question.epoch) {
            self.violation(format!(
                "task {}: a child of execution {epoch} is alive when execution {} begins",
                question.task, question.epoch
            ));
        }
    }

    /// Notes a quiet receipt, and checks that no child process of the task still runs.
    pub(crate) fn quiet_receipt(&self, task: &TaskId) {
        for epoch in children_of(task) {
            self.violation(format!(
                "task {task}: a child of execution {epoch} is alive behind a quiet receipt"
            ));
        }
        self.book
            .lock()
            .quiet
            .insert(task.clone(), Timestamp::from(SystemTime::now()));
    }

    pub(crate) fn violation(&self, what: String) {
        println!("VIOLATION: {what}");
        self.book.lock().violations.push(what);
    }

    pub(crate) fn book(&self) -> LedgerBook {
        self.book.lock().clone()
    }
}

/// Numbers of the executions of a task that have a child process now.
fn children_of(task: &TaskId) -> Vec<u64> {
    let name = format!("{CHILD} {task} ");
    let all = all_processes().into_iter();
    let epochs = all.filter_map(|member| {
        let (_, behind) = member.command_line.split_once(&name)?;
        behind.trim().parse().ok()
    });
    epochs.collect()
}

/// Child processes of all tasks.
pub(crate) fn all_children() -> usize {
    let all = all_processes().into_iter();
    // The command line of a child contains `CHILD`, but the command line of this program does not.
    all.filter(|member| member.command_line.contains(CHILD))
        .count()
}
