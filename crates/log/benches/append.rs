//! Durable appends of 256-byte records: one writer, 64 writers whose appends share a sync, and SQLite by hand.
//!
//! The bar, in one run: 64 grouped writers at least ten times as fast as one writer, and at least half as fast as raw
//! SQLite with 64 records in each commit. Times are per record, so the ratios are those of the times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_log::{AppendIds, Log, MemoryLog, RecordBytes, SqliteLog, StreamName, Version};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const RECORD: [u8; 256] = [b'x'; 256];
const RECORDS_PER_COMMIT: u64 = 64;

/// One session's writer: it appends when the one before is acknowledged, as a turn does.
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

/// How long `writers` tasks take for `records` in all.
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
    // More was written than asked for where the share was rounded up.
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

fn durable(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the system gives threads");
    let folder = TempDir::new_in(".").expect("the working directory can be written");
    let mut group = criterion.benchmark_group("durable_append_256_bytes");
    group.throughput(Throughput::Elements(1));

    for writers in [1, 64] {
        let path = folder.path().join(format!("{writers}.db"));
        let log = runtime
            .block_on(SqliteLog::open(path))
            .expect("the folder is there");
        let mut waiting = Some((0..writers).map(Writer::new).collect());
        group.bench_function(BenchmarkId::new("writers", writers), |bencher| {
            bencher.iter_custom(|records| {
                let writers = waiting.take().expect("each run gives them back");
                let (took, writers) = runtime.block_on(grouped(&log, writers, records));
                waiting = Some(writers);
                took
            });
        });
        runtime.block_on(log.close());
    }

    let raw = raw(&folder);
    group.bench_function("raw_sqlite_64_a_commit", |bencher| {
        bencher.iter_custom(|records| {
            let commits = records.div_ceil(RECORDS_PER_COMMIT);
            let began = Instant::now();
            for _ in 0..commits {
                commit_raw(&raw, RECORDS_PER_COMMIT).expect("the disk has room");
            }
            began
                .elapsed()
                .mul_f64(records as f64 / (commits * RECORDS_PER_COMMIT) as f64)
        });
    });
    group.finish();
}

fn in_memory(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the system gives threads");
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let mut writer = Writer::new(0);
    criterion.bench_function("memory_append_256_bytes", |bencher| {
        bencher.iter_custom(|records| {
            runtime.block_on(async {
                let began = Instant::now();
                for _ in 0..records {
                    writer.append(&*log).await;
                }
                began.elapsed()
            })
        });
    });
}

criterion_group! {
    name = benches;
    // Long enough for the disk's own moods to even out.
    config = Criterion::default().measurement_time(Duration::from_secs(8)).sample_size(20);
    targets = durable, in_memory
}
criterion_main!(benches);
