//! Three NATS servers, which replicate all records.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Client;
use serde_json::Value;

use super::nats_program::NatsProgram;
use super::process::{DemoLauncher, DemoProcess};
use super::wait::wait_for;
use crate::error::CliError;
use crate::tasks::client::http_client;

/// Number of servers, and of copies of each record.
pub(super) const SERVERS: usize = 3;

/// Maximum wait until a server is ready. Usually all servers are ready in less than two seconds.
const READY_MAX: Duration = Duration::from_secs(20);

/// Maximum wait for an answer of a server's monitoring address.
const MONITOR_MAX: Duration = Duration::from_secs(2);

/// NATS stream that contains all records.
const RECORDS: &str = "allstop-log";

/// The servers.
pub(super) struct DemoNatsServers {
    pub(super) servers: Vec<DemoNatsServer>,
    http: Client,
}

/// One of the servers.
pub(super) struct DemoNatsServer {
    pub(super) process: DemoProcess,
    pub(super) client: SocketAddr,
    monitor: SocketAddr,
}

impl DemoNatsServers {
    /// Starts the servers, and waits until they can store records.
    pub(super) async fn start(
        launcher: &DemoLauncher,
        program: &NatsProgram,
    ) -> Result<Self, CliError> {
        let addresses =
            free_addresses(SERVERS * 3).context("cannot find free ports on a loopback address")?;
        let (addresses, _) = addresses.as_chunks::<3>();
        let routes = addresses
            .iter()
            .map(|[_, _, route]| format!("nats://{route}"));
        let routes = routes.collect::<Vec<_>>().join(",");
        let mut servers = Vec::new();
        for (at, &[client, monitor, route]) in addresses.iter().enumerate() {
            let name = format!("nats-{}", at + 1);
            let folder = launcher.folder().join(&name);
            fs::create_dir(&folder).context("cannot create the folder of a server")?;
            let configuration = folder.join("server.conf");
            let store = folder.join("store").display().to_string();
            // Sync every write, so that acknowledged records survive a loss of power, too.
            let text = format!("jetstream {{ store_dir: {store:?}, sync_interval: always }}\n");
            fs::write(&configuration, text)
                .context("cannot write the configuration of a server")?;
            let port = |address: SocketAddr| address.port().to_string();
            let args = [
                ("-a", client.ip().to_string()),
                ("-p", port(client)),
                ("-m", port(monitor)),
                ("-n", name.clone()),
                ("-c", configuration.display().to_string()),
                ("--cluster_name", "allstop-demo".to_owned()),
                ("--cluster", format!("nats://{route}")),
                ("--routes", routes.clone()),
            ];
            let args = args
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value]);
            let process = launcher.start(&name, program.path(), args)?;
            servers.push(DemoNatsServer {
                process,
                client,
                monitor,
            });
        }
        for server in &mut servers {
            server.process.started().await?;
        }
        let http = http_client().no_proxy().timeout(MONITOR_MAX).build();
        let servers = Self {
            servers,
            http: http.context("a client of the servers")?,
        };
        for server in &servers.servers {
            let fact = format!("{} is ready", server.process.name);
            let look = async || servers.is_ready(server).await.transpose();
            wait_for(&fact, READY_MAX, look).await?.0?;
        }
        Ok(servers)
    }

    /// Value of the flag `--store` for the processes of the demo.
    pub(super) fn urls(&self) -> String {
        let urls = self.servers.iter();
        let urls = urls.map(|server| format!("nats://{}", server.client));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Index of the server that leads the stream of the records, as a running server reports it.
    pub(super) async fn leader(&self) -> Option<usize> {
        for server in &self.servers {
            if server.process.has_exited() {
                continue;
            }
            let answer = self.ask(server, "jsz?accounts=true&streams=true").await;
            let Some(leader) = answer.as_ref().and_then(leader_in) else {
                continue;
            };
            let mut servers = self.servers.iter();
            let found = servers.position(|server| server.process.name == leader);
            let runs = |at: &usize| self.servers.get(*at).is_some_and(DemoNatsServer::runs);
            if let Some(found) = found.filter(runs) {
                return Some(found);
            }
        }
        None
    }

    /// `Some` if the server's JetStream (the part that stores records) accepts requests. Returns an error if the server
    /// has exited.
    async fn is_ready(&self, server: &DemoNatsServer) -> Result<Option<()>, CliError> {
        if server.process.has_exited() {
            return Err(server.process.failure("has ended"));
        }
        let answer = self.ask(server, "healthz").await;
        let is_ready = answer.is_some_and(|answer| answer["status"] == "ok");
        Ok(is_ready.then_some(()))
    }

    async fn ask(&self, server: &DemoNatsServer, path: &str) -> Option<Value> {
        let url = format!("http://{}/{path}", server.monitor);
        let response = self.http.get(url).send().await.ok()?;
        serde_json::from_slice(&response.bytes().await.ok()?).ok()
    }
}

impl DemoNatsServer {
    pub(super) fn runs(&self) -> bool {
        !self.process.has_exited()
    }
}

fn leader_in(answer: &Value) -> Option<String> {
    let accounts = answer["account_details"].as_array()?.iter();
    let mut streams = accounts
        .filter_map(|account| account["stream_detail"].as_array())
        .flatten();
    let records = streams.find(|stream| stream["name"] == RECORDS)?;
    records["cluster"]["leader"].as_str().map(str::to_owned)
}

/// Free ports at one IP address of 127.0.0.0/8. The IP address is derived from the pid, so only this process uses it.
///
/// On 127.0.0.1, a connection of another program could take such a port before the server starts. Only Linux can bind
/// all addresses of 127.0.0.0/8, so other systems use 127.0.0.1 nevertheless.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    let host = if cfg!(target_os = "linux") {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        Ipv4Addr::new(127, 64 + high, middle, low)
    } else {
        Ipv4Addr::LOCALHOST
    };
    let listeners = (0..count).map(|_| TcpListener::bind((host, 0)));
    let listeners: Vec<_> = listeners.collect::<Result<_, _>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
