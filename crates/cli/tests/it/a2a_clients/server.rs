//! A2A server with the stepped agent, in the process of the test, on a free port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentDescription, NoAuthentication, PushNotifications, PushOptions,
    ServerOptions, agent_card, grpc_router, http_router, serve,
};
use allstop_core::receipt::ItemKind;
use allstop_log::MemoryLog;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_task::{TaskManager, TaskOptions, TaskParts};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::agent::{ClientChannel, SteppedAgent};

/// Grace of a stop. It is short, because some steps end only by force.
const GRACE: Duration = Duration::from_millis(100);

/// A server that runs until it is dropped.
pub(super) struct SteppedServer {
    pub(super) address: SocketAddr,
    pub(super) channel: ClientChannel,
    _runtime: Runtime,
}

impl SteppedServer {
    pub(super) fn start() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let channel = ClientChannel::default();
        let address = runtime.block_on(start(channel.clone()));
        Self {
            address,
            channel,
            _runtime: runtime,
        }
    }
}

async fn start(channel: ClientChannel) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut options = RootOptions::single_runtime();
    options.grace = GRACE;
    let root = Scope::root("server", options);
    let log = Arc::new(MemoryLog::new());
    let manager = TaskManager::open(
        log.clone(),
        root.clone(),
        Arc::new(TaskParts::of(SteppedAgent(channel.clone()))),
        TaskOptions::default(),
    );
    let manager = manager.await.expect("it opens");
    let options = PushOptions::default().allowed(vec!["127.0.0.0/8".parse().expect("a network")]);
    let push = PushNotifications::open(manager.clone(), log, root.clone(), options);
    let push = push.await.expect("it opens");
    let service = Arc::new(A2aService::new(manager).push(push));
    let card = agent_card(&AgentDescription {
        name: "stepped".into(),
        description: "does the steps of its message".into(),
        version: "1".into(),
        http_url: format!("http://{address}"),
        grpc_url: Some(address.to_string()),
    });
    let access = AccessControl::new(Arc::new(NoAuthentication));
    let router = http_router(&service, card, access.clone())
        .merge(grpc_router(&service, access))
        .merge(channel.router());
    let accepting = root.clone();
    let spec = WorkSpec::new(ItemKind::Future, "listener");
    let serving = root.spawn(spec, |_| {
        serve(listener, router, accepting, ServerOptions::default())
    });
    drop(serving.expect("nothing is stopped"));
    address
}
