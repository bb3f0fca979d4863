//! Durable appends of 256-byte records: by one writer, and by 64 writers whose appends share a sync. The baseline is
//! SQLite itself with the same number of records in each commit. Times are per record.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_bench::{BenchSuite, Figure, timed};
use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, SqliteLog, StreamName, Version};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const RECORD: [u8; 256] = [b'x'; 256];
const WRITERS: u64 = 64;
const RECORDS_PER_COMMIT: u64 = 64;
/// Goal: at least 0.6 times the throughput of SQLite itself.
const GROUPED_RATIO_MAX: f64 = 1.0 / 0.6;
/// Goal: apart from the sync, an append of a single writer takes only the time of one message to the writer's thread
/// and back.
const LONE_RATIO_MAX: f64 = 1.5;

/// Writer of one session. As in a turn, it sends the next append only after the previous append was acknowledged.
struct Writer {
    stream: StreamName,
    version: Version,
    ids: AppendIds,
}

impl Writer {
    fn new(number: u64) -> Self {
        let ids = AppendIds::new();
        Self {
            stream: StreamName::new(format!("session/{number:026}")),
            version: Version(0),
            ids,
        }
    }

    async fn append(&mut self, log: &dyn Log) {
        let records = vec![RecordBytes::from_static(&RECORD)];
        let answer = log
            .append(&self.stream, self.version, self.ids.next_id(), records)
            .await;
        self.version = answer.expect("nobody else writes here");
    }
}

/// Time that `writers` tasks need for `records` appends in total.
async fn grouped(log: &SqliteLog, writers: Vec<Writer>, records: u64) -> (Duration, Vec<Writer>) {
    let share = records.div_ceil(writers.len() as u64);
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for mut writer in writers {
        let log = log.clone();
        tasks.spawn(async move {
            for _ in 0..share {
                writer.append(&log).await;
            }
            writer
        });
    }
    let writers = tasks.join_all().await;
    // The share of each writer was rounded up, so more records are written than requested.
    let written = share * writers.len() as u64;
    (
        began.elapsed().mul_f64(records as f64 / written as f64),
        writers,
    )
}

fn raw(folder: &TempDir) -> Connection {
    let raw = Connection::open(folder.path().join("raw.db")).expect("the folder is there");
    raw.pragma_update(None, "journal_mode", "WAL")
        .expect("it is new");
    raw.pragma_update(None, "synchronous", "FULL")
        .expect("it is new");
    raw.execute_batch("CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        .expect("it is new");
    raw
}

fn commit_raw(raw: &Connection, records: u64) -> rusqlite::Result<()> {
    let mut insert = raw.prepare_cached("INSERT INTO records (body) VALUES (?1)")?;
    raw.execute_batch("BEGIN IMMEDIATE")?;
    for _ in 0..records {
        insert.execute([&RECORD])?;
    }
    raw.execute_batch("COMMIT")
}

/// Number of appends in a sample. Appends for more than a second would not make the result more stable.
const RECORDS: u64 = 2_048;

fn durable(suite: &mut BenchSuite) {
    let runtime = Runtime::new().expect("the system gives threads");
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    let raw = raw(&folder);
    let commits = |commits: u64, records: u64| {
        let raw = &raw;
        move || {
            let work = || (0..commits).try_for_each(|_| commit_raw(raw, records));
            let (took, done) = timed(work);
            done.expect("the disk has room");
            took.div_f64((commits * records) as f64)
        }
    };
    for (writers, records, raw_records, ratio_max) in [
        (1, 64, 1, LONE_RATIO_MAX),
        (WRITERS, RECORDS, RECORDS_PER_COMMIT, GROUPED_RATIO_MAX),
    ] {
        let path = folder.path().join(format!("{writers}.db"));
        let log = runtime
            .block_on(SqliteLog::open(path))
            .expect("the folder is there");
        let mut waiting = Some((0..writers).map(Writer::new).collect());
        let product = || {
            let writers = waiting.take().expect("each sample gives them back");
            let (took, writers) = runtime.block_on(grouped(&log, writers, records));
            waiting = Some(writers);
            took.div_f64(records as f64)
        };
        let figure = Figure::new(
            format!("durable append of 256 bytes, writers: {writers}"),
            product,
        );
        suite.run(
            figure
                .against(
                    format!("SQLite, {raw_records} in a commit"),
                    commits(records / raw_records, raw_records),
                )
                .ratio_at_most(ratio_max),
        );
        runtime.block_on(log.close());
    }
}

fn in_memory(suite: &mut BenchSuite) {
    let runtime = Runtime::new().expect("the system gives threads");
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let mut writer = Writer::new(0);
    suite.run(
        Figure::new("append of 256 bytes in memory", || {
            runtime.block_on(async {
                let began = Instant::now();
                for _ in 0..1_000 {
                    writer.append(&*log).await;
                }
                began.elapsed() / 1_000
            })
        })
        .median_at_most(Duration::from_micros(1)),
    );
}

fn main() -> ExitCode {
    let mut suite = BenchSuite::from_args();
    durable(&mut suite);
    in_memory(&mut suite);
    suite.finish()
}
