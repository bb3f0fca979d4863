//! Prints progress lines, with the memory of workers and servers, and the connections of the servers.

use std::time::{Duration, Instant};

use allstop_process::this_process;
use allstop_testkit::nats_server::{NatsCluster, NatsServer};
use parking_lot::Mutex;

use super::clients::Clients;
use super::fleet::Fleet;

const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Prints the progress, and never returns.
pub(crate) async fn report(
    clients: &Clients<'_>,
    fleet: &Fleet,
    servers: &Mutex<NatsCluster>,
) -> ! {
    let began = Instant::now();
    let mut reports = tokio::time::interval(REPORT_EVERY);
    loop {
        reports.tick().await;
        let workers: Vec<_> = fleet.pids().into_iter().map(resident_mib).collect();
        // A suspended server does not answer, so the call may block.
        let connections = tokio::task::block_in_place(|| {
            let servers = servers.lock();
            let all = servers.servers.iter().map(NatsServer::connections);
            all.collect::<Vec<_>>()
        });
        println!(
            "{:5.0} s: {} tasks done; MiB: clients and front ends {}, workers {workers:?}; connections {connections:?}",
            began.elapsed().as_secs_f64(),
            *clients.done.borrow(),
            resident_mib(this_process().pid),
        );
    }
}

/// Resident memory in MiB. 0 if the process has ended.
fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}
