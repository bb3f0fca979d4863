//! Questions of the executions to the ledger, which accepts or refuses side effects of tasks. Each question is one line
//! of JSON.

use std::io;
use std::net::SocketAddr;

use allstop_core::TaskId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Question of an execution.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LedgerQuestion {
    pub task: TaskId,
    pub epoch: u64,
    /// Pid of the worker.
    pub pid: u32,
    /// Number of the step that has the side effect. `None` for the question at the start of an execution.
    pub step: Option<u32>,
}

/// True if the ledger has accepted the effect.
pub(crate) type LedgerAnswer = bool;

pub(crate) async fn ask(ledger: SocketAddr, question: &LedgerQuestion) -> io::Result<LedgerAnswer> {
    let mut connection = BufReader::new(TcpStream::connect(ledger).await?);
    let mut line = serde_json::to_string(question)?;
    line.push('\n');
    connection.write_all(line.as_bytes()).await?;
    line.clear();
    connection.read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}
