//! Benchmark of tasks over NATS: a stop whose task runs on another node, and the throughput of short tasks. The
//! baseline is the time that the servers need for an equal number of appends and questions without tasks, in the same
//! run. The nodes are managers in this process with separate connections. Every server syncs each append to its disk.
//!
//! `cargo bench -p allstop-nats --bench cluster`; with `SERVERS=3` there are three servers and three replicas (default:
//! 1).

mod nodes;
mod raw;
mod short_tasks;
mod stops;

use std::process::ExitCode;

use allstop_bench::BenchSuite;
use allstop_testkit::nats_server::{NatsCluster, NatsServer};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use nodes::Servers;

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    let runtime = Runtime::new().expect("the system gives threads");
    let folder = TempDir::new().expect("a folder");
    #[expect(clippy::disallowed_methods, reason = "a benchmark's own arguments")]
    let is_replicated = std::env::var("SERVERS").is_ok_and(|count| count == "3");
    if is_replicated {
        let started = NatsCluster::start(folder.path());
        let servers = Servers {
            url: started.url(),
            replicas: 3,
        };
        measure(&mut suite, &runtime, &servers);
    } else {
        let started = NatsServer::start(folder.path());
        let servers = Servers {
            url: started.url(),
            replicas: 1,
        };
        measure(&mut suite, &runtime, &servers);
    }
    suite.finish()
}

fn measure(suite: &mut BenchSuite, runtime: &Runtime, servers: &Servers) {
    let _runtime = runtime.enter();
    stops::measure(suite, runtime, servers);
    short_tasks::measure(suite, runtime, servers);
}
