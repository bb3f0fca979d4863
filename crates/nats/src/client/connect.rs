//! Connects to the servers, and opens the two streams of JetStream.

use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::watch;

use crate::client::attempts::Attempts;
use crate::client::positions::Positions;
use crate::client::store::{NatsStore, REQUEST_MAX};
use crate::connect_error::{ConnectError, PAYLOAD_MIN, SERVER_MIN};
use crate::options::NatsOptions;

/// Timeout of the connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of appends that wait for their answers. Further appends wait until one of these appends is answered.
const APPENDS_MAX: usize = 4_096;

/// Connects to the servers, and creates streams that do not exist.
pub(crate) async fn connect(options: NatsOptions) -> Result<NatsStore, ConnectError> {
    let disconnections = watch::Sender::default();
    let is_connected = watch::Sender::new(true);
    let client = connection(&options, disconnections.clone(), is_connected.clone()).await?;
    let info = client.server_info();
    if !info.jetstream {
        return Err(ConnectError::NoJetStream);
    }
    let (major, minor, patch) = SERVER_MIN;
    if !client.is_server_compatible(major, minor, patch) {
        return Err(ConnectError::ServerTooOld {
            found: info.version,
        });
    }
    if info.max_payload < PAYLOAD_MIN {
        return Err(ConnectError::PayloadTooSmall {
            found: info.max_payload,
        });
    }
    let context = ContextBuilder::new()
        .timeout(REQUEST_MAX)
        .ack_timeout(REQUEST_MAX)
        .max_ack_inflight(APPENDS_MAX)
        .backpressure_on_inflight(true)
        .build(client.clone());
    let mut attempts = Attempts::within(options.answer_max);
    let records = stream(&context, records_config(&options), &mut attempts).await?;
    let locks = stream(&context, locks_config(&options), &mut attempts).await?;
    Ok(NatsStore {
        options,
        client,
        context,
        records,
        locks,
        positions: Positions::new(),
        disconnections,
        is_connected,
    })
}

async fn connection(
    options: &NatsOptions,
    disconnections: watch::Sender<u64>,
    is_connected: watch::Sender<bool>,
) -> Result<Client, ConnectError> {
    let mut connect = ConnectOptions::new()
        .name("allstop")
        .connection_timeout(CONNECT_MAX)
        .request_timeout(Some(REQUEST_MAX))
        .event_callback(move |event| {
            match event {
                Event::Disconnected => {
                    disconnections.send_modify(|count| *count += 1);
                    is_connected.send_replace(false);
                }
                Event::Connected => {
                    is_connected.send_replace(true);
                }
                _ => {}
            }
            std::future::ready(())
        });
    // The NATS client creates its own TLS settings, and needs the crypto provider of the process for them.
    let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
    if let Some(path) = &options.credentials {
        let with_credentials = connect.credentials_file(path).await;
        connect = with_credentials
            .map_err(|error| ConnectError::Credentials(format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = &options.authorities {
        connect = connect.add_root_certificates(path.clone());
    }
    let unreachable = |error: &dyn std::error::Error| ConnectError::Unreachable {
        servers: options.addresses(),
        reason: error.to_string(),
    };
    let servers = options
        .servers
        .split(',')
        .map(|server| server.trim().parse());
    let servers: Result<Vec<ServerAddr>, _> = servers.collect();
    let servers = servers.map_err(|error| unreachable(&error))?;
    // The NATS client itself ignores the user and the password in the URLs.
    let named = servers.iter().find(|server| server.has_user_pass());
    if let Some((user, password)) = named.and_then(|server| {
        let password = server.password().unwrap_or_default();
        Some((server.username()?, password))
    }) {
        connect = connect.user_and_password(user.to_owned(), password.to_owned());
    }
    let client = connect.connect(servers).await;
    client.map_err(|error| match error.kind() {
        ConnectErrorKind::TimedOut => ConnectError::NoAnswer {
            servers: options.addresses(),
        },
        _ => unreachable(&error),
    })
}

fn records_config(options: &NatsOptions) -> Config {
    Config {
        name: format!("{}-log", options.prefix),
        description: Some("Records of Allstop: a subject per log stream".to_owned()),
        subjects: vec![
            format!("{}.log.>", options.prefix),
            format!("{}.piece.>", options.prefix),
        ],
        allow_rollup: true,
        ..common(options)
    }
}

fn locks_config(options: &NatsOptions) -> Config {
    Config {
        name: format!("{}-locks", options.prefix),
        description: Some("Processes of Allstop, and the streams that they hold".to_owned()),
        subjects: vec![
            format!("{}.lock.>", options.prefix),
            format!("{}.process.*", options.prefix),
        ],
        max_messages_per_subject: 1,
        allow_message_ttl: true,
        ..common(options)
    }
}

/// Configuration that all streams share. The servers never drop a message to make room: a full store refuses new
/// messages.
pub(crate) fn common(options: &NatsOptions) -> Config {
    Config {
        num_replicas: options.replicas,
        discard: DiscardPolicy::New,
        ..Config::default()
    }
}

/// Opens or creates a stream. Servers that were just started may first need to elect a leader, so the request is
/// repeated.
pub(crate) async fn stream(
    context: &Context,
    config: Config,
    attempts: &mut Attempts,
) -> Result<Stream, ConnectError> {
    loop {
        let opened = context.get_or_create_stream(config.clone()).await;
        let error = match opened {
            Ok(stream) if keeps_all(&stream.cached_info().config, &config) => return Ok(stream),
            Ok(_) => return Err(ConnectError::OtherLimits(config.name)),
            Err(error) => error,
        };
        if let CreateStreamErrorKind::JetStream(server) = error.kind() {
            match server.error_code() {
                ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                    return Err(ConnectError::NoJetStream);
                }
                ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => {
                    return Err(ConnectError::Replicas {
                        replicas: config.num_replicas,
                        reason: server.to_string(),
                    });
                }
                // The error may be temporary: directly after a start, not all servers of the group may be connected.
                _ => {}
            }
        }
        if !attempts.next().await {
            return Err(ConnectError::Streams(error.to_string()));
        }
    }
}

/// True if the existing stream drops no message that the wanted configuration would keep.
fn keeps_all(found: &Config, wanted: &Config) -> bool {
    found.discard == wanted.discard
        && found.max_age.is_zero()
        && found.max_messages <= 0
        && found.max_messages_per_subject.max(0) == wanted.max_messages_per_subject
        && found.allow_rollup == wanted.allow_rollup
        && found.allow_message_ttl == wanted.allow_message_ttl
        && !(found.deny_delete || found.deny_purge)
}
