//! Measures the servers without tasks: durable appends that name the expected last message, as the appends of a task
//! do, and a question to another connection.

use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, stream};
use futures::StreamExt as _;
use tokio::task::JoinSet;

use crate::nodes::Servers;

/// Body whose size is about the size of a task's records.
const BODY: &[u8] = &[b'x'; 300];

pub(crate) struct RawServers {
    client: async_nats::Client,
    jetstream: jetstream::Context,
    /// Subject that only this instance uses.
    subject: String,
    appends: AtomicU64,
    /// Dropped with this instance.
    _answering: JoinSet<()>,
}

impl RawServers {
    pub(crate) async fn connect(servers: &Servers) -> Self {
        let client = async_nats::connect(servers.addresses())
            .await
            .expect("servers");
        let jetstream = jetstream::new(client.clone());
        let config = stream::Config {
            name: "raw".to_owned(),
            subjects: vec!["raw.>".to_owned()],
            num_replicas: servers.replicas,
            ..stream::Config::default()
        };
        jetstream
            .get_or_create_stream(config)
            .await
            .expect("a new stream");
        let other = async_nats::connect(servers.addresses())
            .await
            .expect("servers");
        let mut questions = other.subscribe("echo").await.expect("it is connected");
        other.flush().await.expect("it is connected");
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            while let Some(question) = questions.next().await {
                let to = question.reply.expect("a question");
                other
                    .publish(to, "yes".into())
                    .await
                    .expect("it is connected");
            }
        });
        Self {
            subject: format!("raw.{}", client.new_inbox()),
            client,
            jetstream,
            appends: AtomicU64::new(0),
            _answering: answering,
        }
    }

    /// Creates this number of streams, and appends `records` records to each of them, one after another.
    pub(crate) async fn append(&self, streams: u64, records: u64) {
        let first = self.appends.fetch_add(streams, Ordering::Relaxed);
        let (jetstream, subject) = (&self.jetstream, &self.subject);
        let all = (first..first + streams).map(|number| async move {
            let mut last = 0;
            for _ in 0..records {
                let publish = PublishMessage::build()
                    .payload(BODY.into())
                    .expected_last_subject_sequence(last);
                let subject = format!("{subject}.{number}");
                let sent = jetstream.send_publish(subject, publish).await;
                let stored = sent.expect("it is connected").await;
                last = stored.expect("nobody else writes there").sequence;
            }
        });
        futures::stream::iter(all)
            .buffer_unordered(crate::short_tasks::AT_A_TIME)
            .for_each(|()| async {})
            .await;
    }

    pub(crate) async fn ask(&self) {
        let answer = self.client.request("echo", "?".into()).await;
        answer.expect("the other one answers");
    }

    /// Number of messages in all streams of the servers.
    pub(crate) async fn appended(&self) -> u64 {
        let mut streams = self.jetstream.streams();
        let mut messages = 0;
        while let Some(stream) = streams.next().await {
            messages += stream.expect("the servers work").state.last_sequence;
        }
        messages
    }
}
