//! The failure G1 of other servers: a client that stops reading blocks all other clients.

use std::time::Duration;

use allstop_a2a::ServerOptions;
use allstop_task::model::Artifact;
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskState};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{ObedientAgent, events, message, result, router_of, rpc};
use crate::test_server::{SOON, TestServer};

/// Number of events of a loud task. Together, the events exceed all buffers of a connection.
const LOUD_EVENTS: usize = 300;
const LOUD_EVENT_BYTES: usize = 100 * 1024;

/// The agent of `support`, with an additional command: for the message `loud`, the agent writes more than a connection
/// can buffer, and then waits for a stop.
struct LoudAgent;

impl Executor for LoudAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        if !format!("{:?}", cx.message.parts).contains("loud") {
            return ObedientAgent.execute(cx);
        }
        async move {
            let _ended = cx.events.write(TaskEvent::state(TaskState::Working)).await;
            let text = "x".repeat(LOUD_EVENT_BYTES);
            for number in 0..LOUD_EVENTS {
                let artifact = Artifact::text(format!("a{number}"), text.as_str());
                let _ended = cx.events.write(TaskEvent::artifact(artifact)).await;
            }
            cx.scope.stopped_at("waiting").await;
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

/// Creates a client that has sent this JSON-RPC call and reads only the head of the response.
async fn stalled_client(server: &TestServer, method: &str, params: &Value) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(server.address).await.expect("a connection");
    let call = json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}).to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: x\r\nauthorization: alice\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{call}",
        call.len()
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    let mut begin = [0; 12];
    let read = tokio::time::timeout(SOON, stream.read_exact(&mut begin)).await;
    read.expect("in time").expect("an answer");
    assert_eq!(&begin, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn g1_client_that_stops_reading_costs_nobody_anything() {
    let router = router_of(LoudAgent).await;
    let server = TestServer::of(router.clone(), ServerOptions::default()).await;
    let sender = stalled_client(&server, "SendStreamingMessage", &message("m", "loud")).await;
    let listed = result(&router, "ListTasks", &json!({})).await;
    let loud = listed["tasks"][0]["id"].clone();
    let params = json!({"id": loud});
    let second = stalled_client(&server, "SubscribeToTask", &params).await;
    let others = async {
        // Another subscriber of the loud task receives all events.
        let from_the_start = {
            let mut request = rpc("SubscribeToTask", &params);
            let cursor = "1".parse().expect("a value");
            request.headers_mut().insert("last-event-id", cursor);
            request
        };
        let read = events(&router, from_the_start, 1 + LOUD_EVENTS).await;
        assert_eq!(read.len(), 1 + LOUD_EVENTS);
        // Other tasks can run and stop. The loud task can stop, too.
        for number in 0..5 {
            let echoed = message(&format!("echo {number}"), "echo");
            let echoed = result(&router, "SendMessage", &echoed).await;
            assert_eq!(echoed["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        }
        let mut waiting = message("wait", "wait");
        waiting["configuration"] = json!({"returnImmediately": true});
        let waiting = result(&router, "SendMessage", &waiting).await;
        for id in [&waiting["task"]["id"], &loud] {
            let stopped = result(&router, "CancelTask", &json!({"id": id})).await;
            assert_eq!(stopped["status"]["state"], "TASK_STATE_CANCELED");
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), others).await;
    assert!(
        in_time.is_ok(),
        "a client that does not read holds the others up"
    );
    drop((sender, second));
}
