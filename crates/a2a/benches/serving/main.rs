//! Tasks over A2A, in one process and over real connections:
//!
//! - `SendMessage` with a task of three events, compared with the default handler of the A2A project's server library;
//! - delivery of one task's events to 1,000 subscribers, with and without a stalled subscriber, which does not read;
//! - stops while 1,000 executors run;
//! - a page of a long list;
//! - memory for pages, and for one large task, that their clients do not read.
//!
//! Clients share the process and its processors with the server. The times are therefore upper limits, and only the
//! ratios are meaningful.

use std::process::ExitCode;

use allstop_bench::BenchSuite;
use tokio::runtime::{Builder, Runtime};

mod client;
mod default_handler;
mod deliveries;
mod fan_out;
mod listing;
mod memory;
mod product;
mod send;
mod sse_fan_out;
mod sse_reader;
mod stopping;
mod unread_responses;

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let runtime = runtime();
    send::run(&mut suite, &runtime);
    fan_out::run(&mut suite, &runtime);
    sse_fan_out::run(&mut suite, &runtime);
    stopping::run(&mut suite, &runtime);
    listing::run(&mut suite, &runtime);
    unread_responses::run(&mut suite, &runtime);
    suite.finish()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads")
}
