//! Soak test of a cluster. Workers and servers are killed and suspended while tasks run and are stopped. At the end, a
//! check compares the log with the results that the clients and the ledger saw.
//!
//! `cargo run --release -p allstop-nats --example soak -- --help`
//!
//! Each task sends its side effects to a ledger. The ledger implements fencing: for each effect, the ledger reads in
//! the log whether the execution that sent the effect still owns the task. If a worker has lost its task, the ledger
//! therefore refuses and counts every further effect of this worker.

#![expect(
    clippy::print_stdout,
    reason = "it reports on standard output, as a program does"
)]

mod account;
mod clients;
mod faults;
mod fleet;
mod ledger;
mod ledger_client;
mod nodes;
mod options;
mod plan;
mod watch;
mod work;
mod worker;

use std::process::ExitCode;
use std::time::Instant;

use allstop_process::keeper_main;
use allstop_testkit::nats_server::NatsCluster;
use clap::Parser as _;
use futures::FutureExt as _;

use clients::Clients;
use fleet::Fleet;
use ledger::Ledger;
use nodes::front_end;
use options::{SoakCommand, SoakOptions, WorkerOptions};

/// Number of servers of the log.
const SERVERS: usize = 3;

fn main() -> ExitCode {
    match SoakCommand::parse() {
        SoakCommand::Keep => keeper_main(),
        SoakCommand::Worker(options) => in_runtime(worker::run(options)),
        SoakCommand::Run(options) => in_runtime(run(options)),
    }
}

fn in_runtime(program: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(program)
}

async fn run(options: SoakOptions) -> ExitCode {
    let began = Instant::now();
    let folder = tempfile::TempDir::new().expect("a folder");
    let servers = NatsCluster::start(folder.path());
    println!(
        "seed {}, files in {}",
        options.seed,
        folder.path().display()
    );
    let (url, fronts) = (
        servers.url(),
        [
            front_end(&servers.url()).await,
            front_end(&servers.url()).await,
        ],
    );
    let ledger = Ledger::new(fronts[0].manager.clone());
    let listener = ledger::listener().await;
    let fleet = Fleet::new(
        WorkerOptions {
            servers: url.clone(),
            ledger: listener.local_addr().expect("it is bound"),
            lease: options.lease,
        },
        folder.path(),
        options.workers,
    );
    let servers = parking_lot::Mutex::new(servers);
    let clients = Clients::new(&options, &fronts, &ledger);
    let play = async {
        let faults = faults::play(&options, &clients, &fleet, &servers);
        futures::future::join(clients.run(), faults).await;
    };
    let ended = tokio::select! {
        () = play => true,
        _never = fleet.keep_up() => false,
        _never = ledger.serve(listener) => false,
        _never = watch::report(&clients, &fleet, &servers) => false,
    };
    assert!(ended, "only the play ends");
    println!(
        "every task has ended after {:.0} s",
        began.elapsed().as_secs_f64()
    );
    let wake_ups = account::wake_ups_left(&url).await;
    if wake_ups > 0 {
        ledger.violation(format!("{wake_ups} wake-ups are left"));
    }
    let left_over = fleet.end().await;
    let violations = account::settle(&url, &clients, &ledger, left_over).await;
    for front in fronts {
        front.end().boxed().await;
    }
    if violations.is_empty() {
        println!("no violation; {:.0} s", began.elapsed().as_secs_f64());
        return ExitCode::SUCCESS;
    }
    for violation in &violations {
        println!("VIOLATION: {violation}");
    }
    // The files are kept for a later inspection.
    println!("the files stay: {}", folder.keep().display());
    ExitCode::FAILURE
}
