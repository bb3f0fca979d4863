//! Logs that run on separate servers.

use allstop_nats::{NatsLog, NatsOptions};
use allstop_scope::{RootOptions, Scope};
use allstop_testkit::nats_server::{NatsCluster, NatsServer};
use tempfile::TempDir;

/// Servers and folder of a log. The servers end first, and then the folder is deleted.
pub(crate) struct Kept<S> {
    pub servers: S,
    _folder: TempDir,
}

pub(crate) fn scope() -> Scope {
    Scope::root("nats", RootOptions::single_runtime())
}

pub(crate) async fn open(url: String, replicas: usize) -> NatsLog {
    let mut options = NatsOptions::new(url);
    options.replicas = replicas;
    NatsLog::open(options, &scope()).await.expect("a server")
}

pub(crate) async fn on_one_server() -> (NatsLog, Kept<NatsServer>) {
    let folder = TempDir::new().expect("a folder");
    let servers = NatsServer::start(folder.path());
    let log = open(servers.url(), 1).await;
    let kept = Kept {
        servers,
        _folder: folder,
    };
    (log, kept)
}

pub(crate) async fn on_three_servers() -> (NatsLog, Kept<NatsCluster>) {
    let folder = TempDir::new().expect("a folder");
    let servers = NatsCluster::start(folder.path());
    let log = open(servers.url(), 3).await;
    let kept = Kept {
        servers,
        _folder: folder,
    };
    (log, kept)
}
