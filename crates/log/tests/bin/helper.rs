//! A separate process for the tests of the log. The tests kill it, let it race against another process, or restrict its
//! rights.
//!
//! ```text
//! allstop-log-helper append STORE PER_APPEND COUNT STREAM…   appends to each stream, prints `STREAM VERSION` each time
//! allstop-log-helper lock STORE STREAM                       prints `locked` or `held`, keeps it until stdin ends
//! allstop-log-helper own STORE SESSION OPEN                  creates a session with a turn, left open for `open`;
//!                                                            prints `owned`, keeps it until stdin ends
//! allstop-log-helper try STORE BYTES                         opens, appends once; prints `ok`, or kind and text
//! ```

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::sync::Arc;

use allstop_core::record::{SessionRecord, TurnOrigin};
use allstop_core::{Timestamp, TurnNumber};
use allstop_log::session::stream_of;
use allstop_log::{
    AppendError, AppendIds, LockAttempt, Log, SessionWriter, SqliteLog, StreamName, Version,
};
use futures::future::try_join_all;

type Failure = Box<dyn Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["append", store, per_append, count, streams @ ..] => {
            let log = SqliteLog::open(store).await?;
            let (per_append, count) = (per_append.parse()?, count.parse()?);
            try_join_all(streams.iter().map(|s| append(&log, s, per_append, count))).await?;
        }
        ["lock", store, stream] => {
            let log = SqliteLog::open(store).await?;
            let attempt = log.try_lock(&StreamName::new(*stream)).await?;
            say(match &attempt {
                LockAttempt::Locked(_) => "locked",
                LockAttempt::HeldBy(_) => "held",
            })?;
            stdin().read_to_end(&mut Vec::new())?;
        }
        ["own", store, session, turn] => {
            let log: Arc<dyn Log> = Arc::new(SqliteLog::open(store).await?);
            let _session = own(log, session, *turn == "open").await?;
            say("owned")?;
            stdin().read_to_end(&mut Vec::new())?;
        }
        ["try", store, bytes] => match try_append(store, bytes.parse()?).await {
            Ok(_) => say("ok")?,
            Err(AppendError::Log(error)) => say(&format!("{:?}: {error}", error.kind()))?,
            Err(error) => say(&error.to_string())?,
        },
        _ => return Err("see the head of the source".into()),
    }
    Ok(())
}

/// Appends records `STREAM n`, where `n` is the number of the record. Each append has `per_append` records. Other
/// writers may append at the same time.
async fn append(log: &SqliteLog, name: &str, per_append: u64, count: u64) -> Result<(), Failure> {
    let (stream, mut ids) = (StreamName::new(name), AppendIds::new());
    let known = log
        .list(name)
        .await?
        .into_iter()
        .find(|(found, _)| *found == stream);
    let mut version = known.map_or(Version(0), |(_, version)| version);
    for _ in 0..count {
        let id = ids.next_id();
        loop {
            let numbers = (1..=per_append).map(|n| version.0 + n);
            let records = numbers.map(|n| format!("{name} {n}").into()).collect();
            match log.append(&stream, version, id, records).await {
                Ok(reached) => {
                    version = reached;
                    break;
                }
                Err(AppendError::Conflict { actual }) => version = actual,
                Err(error) => return Err(error.into()),
            }
        }
        say(&format!("{name} {version}"))?;
    }
    Ok(())
}

async fn own(log: Arc<dyn Log>, id: &str, is_open: bool) -> Result<SessionWriter, Failure> {
    let (at, turn) = (Timestamp::from_unix_ms(0), TurnNumber(1));
    let mut session = SessionWriter::create(Arc::clone(&log), id.into(), at, "/work", None).await?;
    let owner = log.lock_owner(&stream_of(&id.into())).await?;
    let started = SessionRecord::TurnStarted {
        turn,
        at,
        input: "hello".into(),
        images: Vec::new(),
        owner,
        message: None,
        origin: TurnOrigin::User,
        reported: Vec::new(),
    };
    session.append(vec![started]).await?;
    if !is_open {
        session.append(session.state().recovery_records(at)).await?;
    }
    Ok(session)
}

async fn try_append(store: &str, bytes: usize) -> Result<Version, AppendError> {
    let log = SqliteLog::open(store).await?;
    let record = vec![b'x'; bytes].into();
    log.append(
        &StreamName::new("try"),
        Version(0),
        AppendIds::new().next_id(),
        vec![record],
    )
    .await
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
