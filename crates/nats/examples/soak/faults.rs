//! The faults of the soak test: kills and pauses of workers and servers. Each fault comes after a certain number of
//! completed tasks.

use std::time::Duration;

use allstop_testkit::Random;
use allstop_testkit::nats_server::NatsCluster;
use parking_lot::Mutex;

use super::SERVERS;
use super::clients::Clients;
use super::fleet::{Fleet, pause};
use super::options::SoakOptions;

/// Paused workers, and the servers in an outage, are unavailable for the length of a lease plus this time.
const BEYOND_LEASE: Duration = Duration::from_secs(3);

/// Longest pause of a single server.
const SERVER_PAUSE_MAX: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, Copy)]
enum SoakFault {
    WorkerKill,
    WorkerPause,
    ServerKill,
    ServerPause,
    Outage,
}

/// Injects all faults. The number of tasks that the clients complete between two faults is always equal.
pub(crate) async fn play(
    options: &SoakOptions,
    clients: &Clients<'_>,
    fleet: &Fleet,
    servers: &Mutex<NatsCluster>,
) {
    let mut random = Random::new(options.seed);
    let faults = shuffled(options, &mut random);
    let share = options.tasks / (faults.len() + 1);
    let mut done = clients.done.subscribe();
    for (index, fault) in faults.into_iter().enumerate() {
        clients
            .allowed
            .send_replace(share * (index + 1) + options.clients);
        let reached = done.wait_for(|done| *done >= share * (index + 1)).await;
        drop(reached.expect("the clients hold the sender"));
        // The delay is random, so that tasks are in progress when the fault comes.
        tokio::time::sleep(random.before(Duration::from_millis(500))).await;
        let worker = random.below(options.workers as u64) as usize;
        let server = random.below(SERVERS as u64) as usize;
        let pid = |server: usize| Some(servers.lock().servers[server].pid());
        println!("fault {}: {fault:?}", index + 1);
        match fault {
            SoakFault::WorkerKill => fleet.kill(worker).await,
            SoakFault::WorkerPause => fleet.pause(worker, options.lease() + BEYOND_LEASE).await,
            SoakFault::ServerKill => {
                tokio::task::block_in_place(|| servers.lock().servers[server].restart());
            }
            SoakFault::ServerPause => pause(pid(server), random.before(SERVER_PAUSE_MAX)).await,
            SoakFault::Outage => {
                let time = options.lease() + BEYOND_LEASE;
                let (one, other) = (pid(server), pid((server + 1) % SERVERS));
                futures::future::join(pause(one, time), pause(other, time)).await;
            }
        }
    }
    clients.allowed.send_replace(options.tasks);
}

fn shuffled(options: &SoakOptions, random: &mut Random) -> Vec<SoakFault> {
    let all = [
        (SoakFault::WorkerKill, options.worker_kills),
        (SoakFault::WorkerPause, options.worker_pauses),
        (SoakFault::ServerKill, options.server_kills),
        (SoakFault::ServerPause, options.server_pauses),
        (SoakFault::Outage, options.outages),
    ];
    let all = all
        .into_iter()
        .flat_map(|(fault, count)| std::iter::repeat_n(fault, count));
    let mut faults: Vec<_> = all.collect();
    for end in (1..faults.len()).rev() {
        faults.swap(end, random.below(end as u64 + 1) as usize);
    }
    faults
}
