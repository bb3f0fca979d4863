//! `SendMessage` with a task of three events, over connections that stay open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure};
use allstop_log::{MemoryLog, SqliteLog};
use allstop_scope::GRACE_DEFAULT;
use tokio::runtime::Runtime;

use crate::client::Client;
use crate::product::ThreeEvents;
use crate::{default_handler, product};

/// Few and many concurrent clients.
const CONNECTIONS: [usize; 2] = [8, 64];
/// Number of messages in a sample, which takes about a tenth of a second.
const MESSAGES: usize = 1_920;
const ROUNDS: usize = 15;

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let name = |connections: usize, log: &str| {
        format!("{MESSAGES} SendMessage, {connections} connections, {log} log")
    };
    for connections in CONNECTIONS {
        let (memory, sqlite) = (name(connections, "memory"), name(connections, "SQLite"));
        if !(suite.wants(&memory) || suite.wants(&sqlite)) {
            continue;
        }
        let folder = tempfile::TempDir::new_in(".").expect("the working directory can be written");
        let path = folder.path().join("store.db");
        let (in_memory, durable, baseline) = runtime.block_on(async {
            let scope = product::root(GRACE_DEFAULT);
            let log = Arc::new(MemoryLog::new());
            let manager = product::manager(&scope, log, ThreeEvents).await;
            let in_memory = product::serve(&scope, manager).await;
            let scope = product::root(GRACE_DEFAULT);
            let log = Arc::new(SqliteLog::open(path).await.expect("the folder is there"));
            let manager = product::manager(&scope, log, ThreeEvents).await;
            let durable = product::serve(&scope, manager).await;
            (in_memory, durable, default_handler::serve(&scope).await)
        });
        let sample = |server| sample(runtime, server, connections);
        suite.run(
            Figure::new(memory, sample(in_memory))
                .rounds(ROUNDS)
                .against("the library's default handler", sample(baseline))
                .ratio_at_most(1.0),
        );
        // This figure has no goal, because the baseline stores nothing.
        suite.run(
            Figure::new(sqlite, sample(durable))
                .rounds(ROUNDS)
                .against("the library's default handler", sample(baseline)),
        );
    }
}

/// Returns a function that measures the time of all messages, sent over these connections.
fn sample(runtime: &Runtime, server: SocketAddr, connections: usize) -> impl FnMut() -> Duration {
    // Both figures, with the memory log and with the SQLite log, use this baseline. Each figure therefore sends equal
    // message ids to the baseline, but the baseline creates a new task for each message.
    let mut client = runtime.block_on(Client::connect(server, connections));
    move || runtime.block_on(client.send(MESSAGES / connections))
}
