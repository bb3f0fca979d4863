//! Real NATS servers with JetStream on loopback ports.
//!
//! `cargo xtask parts` fetches the server (`cargo xtask test` runs this command first). If the server is missing, a
//! start panics with a message. A test never skips because the server is missing.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::installed_part::folder_of;
use crate::own_loopback::free_addresses;

/// Maximum time until servers are ready. One server takes 50 ms, and three servers take half a second.
const START_MAX: Duration = Duration::from_secs(30);

/// Interval between two checks of a starting server.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One server, killed when this value is dropped.
#[derive(Debug)]
#[must_use = "dropping the server kills it"]
pub struct NatsServer {
    child: Child,
    arguments: Vec<String>,
    client: SocketAddr,
    monitor: SocketAddr,
    folder: PathBuf,
}

/// Servers that replicate each other, killed when this value is dropped.
#[derive(Debug)]
#[must_use = "dropping the servers kills them"]
pub struct NatsCluster {
    /// The servers. To kill one, see [`NatsServer::kill`].
    pub servers: Vec<NatsServer>,
}

impl NatsServer {
    /// Starts a single server that stores its data in this folder, and waits until the server answers.
    ///
    /// # Panics
    /// Panics if the server was never fetched, or if the server does not become ready. In the second case the server's
    /// errors are on standard error.
    pub fn start(folder: impl Into<PathBuf>) -> Self {
        Self::start_with(folder, "")
    }

    /// Starts a server with more lines of configuration.
    ///
    /// # Panics
    /// Panics in the same cases as [`NatsServer::start`].
    pub fn start_with(folder: impl Into<PathBuf>, configuration: &str) -> Self {
        let server = Self::spawn(folder.into(), free_addresses(), configuration, &[]);
        server.wait_until_ready();
        server
    }

    fn spawn(
        folder: PathBuf,
        [client, monitor]: [SocketAddr; 2],
        configuration: &str,
        arguments: &[String],
    ) -> Self {
        fs::create_dir_all(&folder).expect("the folder can be made");
        let config = folder.join("server.conf");
        // With `sync_interval: always`, acknowledged data also survives a power failure.
        let store = folder.join("store").display().to_string();
        let text =
            format!("jetstream {{ store_dir: {store:?}, sync_interval: always }}\n{configuration}");
        fs::write(&config, text).expect("the configuration can be written");
        let port = |address: SocketAddr| address.port().to_string();
        let mut all = vec!["-a".to_owned(), client.ip().to_string()];
        all.extend([
            "-p".to_owned(),
            port(client),
            "-m".to_owned(),
            port(monitor),
        ]);
        all.extend(["-c".to_owned(), config.display().to_string()]);
        all.extend(arguments.iter().cloned());
        Self {
            child: run(&all),
            arguments: all,
            client,
            monitor,
            folder,
        }
    }

    /// Address for clients, `nats://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.client)
    }

    /// Kills the server, as if the machine of the server had failed.
    pub fn kill(&mut self) {
        // Both calls fail only if the server has already been reaped, and no other code can reap it.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }

    /// Starts a killed server again with the same store, and waits until the server answers.
    pub fn restart(&mut self) {
        self.kill();
        self.child = run(&self.arguments);
        self.wait_until_ready();
    }

    /// Pid of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "another process is asked until it answers"
    )]
    fn wait_until_ready(&self) {
        let began = Instant::now();
        while !self.is_ready() {
            let log = self.folder.display();
            assert!(
                began.elapsed() < START_MAX,
                "the server in {log} is not ready"
            );
            sleep(LOOK_EVERY);
        }
    }

    /// Number of client connections of the server; `None` if the server does not answer.
    pub fn connections(&self) -> Option<u64> {
        let answer = self.ask_monitor("/varz")?;
        let (_, behind) = answer.split_once("\"connections\":")?;
        let number = behind.trim_start();
        let end = number.find(|c: char| !c.is_ascii_digit())?;
        number[..end].parse().ok()
    }

    /// Queries the server's monitoring port. The answer shows whether JetStream works and, in a cluster, whether there
    /// is a leader.
    fn is_ready(&self) -> bool {
        let answer = self.ask_monitor("/healthz");
        answer.is_some_and(|answer| answer.contains("\"status\":\"ok\""))
    }

    fn ask_monitor(&self, path: &str) -> Option<String> {
        use std::io::{Read as _, Write as _};
        let mut monitor = TcpStream::connect(self.monitor).ok()?;
        monitor
            .set_read_timeout(Some(Duration::from_secs(2)))
            .ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        monitor.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        monitor.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl NatsCluster {
    /// Starts three servers that form a cluster and store their data in this folder, and waits until they answer.
    ///
    /// # Panics
    /// Panics in the same cases as [`NatsServer::start`].
    pub fn start(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let addresses = free_addresses::<9>();
        let (addresses, _) = addresses.as_chunks::<3>();
        let all_routes: Vec<String> = addresses
            .iter()
            .map(|[_, _, route]| format!("nats://{route}"))
            .collect();
        let start = |(index, [client, monitor, route]): (usize, &[SocketAddr; 3])| {
            let name = format!("n{index}");
            let arguments = [
                ("-n", name.clone()),
                ("--cluster_name", "test".to_owned()),
                ("--cluster", format!("nats://{route}")),
                ("--routes", all_routes.join(",")),
            ];
            let arguments: Vec<String> = arguments
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .collect();
            NatsServer::spawn(folder.join(name), [*client, *monitor], "", &arguments)
        };
        let servers: Vec<_> = addresses.iter().enumerate().map(start).collect();
        for server in &servers {
            server.wait_until_ready();
        }
        Self { servers }
    }

    /// Addresses of all servers, separated by commas.
    pub fn url(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(NatsServer::url).collect();
        urls.join(",")
    }
}

/// Path of the server's program.
///
/// # Panics
/// Panics if the server was never fetched.
pub fn program() -> PathBuf {
    folder_of("nats").join("bin/nats-server")
}

fn run(arguments: &[String]) -> Child {
    Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server can be started")
}
