//! Random damage of each file of a store: a changed bit, a zeroed page, a cut. No answer may be wrong without an error.
//! `ALLSTOP_TEST_DAMAGES=1000` sets the number of damages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use allstop_log::{
    AppendId, Log, LogError, RecordBytes, SqliteLog, StoreMaintenance, StreamName, Version,
};

const STREAMS: u64 = 40;
const DAMAGES: u64 = 30;
const PAGE: u64 = 4_096;

type Contents = BTreeMap<String, Vec<RecordBytes>>;

/// A sequence of numbers that is the same in each run (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

async fn append(log: &SqliteLog, contents: &mut Contents, stream: &str, body: RecordBytes) {
    let records = contents.entry(stream.to_owned()).or_default();
    let at = Version(records.len() as u64);
    let id = AppendId(u128::from(at.0));
    let appended = log.append(&StreamName::new(stream), at, id, vec![body.clone()]);
    appended.await.unwrap();
    records.push(body);
}

/// Fills a store: most records are in the file of the store, the last ones in the write-ahead log.
async fn fill(path: &Path) -> Contents {
    let log = SqliteLog::open(path).await.unwrap();
    let mut contents = Contents::new();
    for n in 0..STREAMS * 12 {
        let stream = format!("session/{:02}", (n / 6) % STREAMS);
        let body = format!("record {n} {}", "x".repeat((n * 37 % 900) as usize));
        append(&log, &mut contents, &stream, body.into()).await;
        if n == STREAMS * 10 {
            log.write_back().await.unwrap();
        }
    }
    log.close().await;
    contents
}

/// Everything that the store answers: its streams, and each stream or its error.
async fn answers(
    path: &Path,
) -> Result<BTreeMap<String, Result<Vec<RecordBytes>, LogError>>, LogError> {
    let log = SqliteLog::open(path).await?;
    let listed = log.list("").await;
    let mut answers = BTreeMap::new();
    for (stream, _) in listed.iter().flatten() {
        let read = log.read(stream, Version(1), usize::MAX).await;
        let read = read.map(|records| records.into_iter().map(|(_, body)| body).collect());
        answers.insert(stream.as_str().to_owned(), read);
    }
    log.close().await;
    listed.map(|_| answers)
}

fn damage(bytes: &mut Vec<u8>, numbers: &mut Numbers) -> String {
    let at = numbers.below(bytes.len() as u64) as usize;
    match numbers.below(3) {
        0 => {
            let bit = numbers.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        1 => {
            let page = at as u64 / PAGE * PAGE;
            let end = bytes.len().min((page + PAGE) as usize);
            bytes[page as usize..end].fill(0);
            format!("zeros from {page}")
        }
        _ => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a developer sets the number")]
fn number_of_damages() -> u64 {
    let set = std::env::var("ALLSTOP_TEST_DAMAGES");
    set.map_or(DAMAGES, |set| set.parse().expect("a number"))
}

#[tokio::test]
async fn random_damage_is_an_error_and_repair_keeps_the_other_sessions() {
    let count = number_of_damages();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let contents = fill(&path).await;
    let files = ["", "-wal", "-shm"].map(|end| folder.path().join(format!("store.db{end}")));
    let whole = files.each_ref().map(|file| fs::read(file).unwrap());
    let (mut silent, mut lost, mut refused) = (Vec::new(), Vec::new(), 0);
    for seed in 0..count {
        let mut numbers = Numbers(seed);
        let which = (seed % 3) as usize;
        let mut damaged = whole.clone();
        let what = damage(&mut damaged[which], &mut numbers);
        let what = format!("seed {seed}: {what} of {}", files[which].display());
        for entry in fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
        for (file, bytes) in files.iter().zip(&damaged) {
            fs::write(file, bytes).unwrap();
        }
        match answers(&path).await {
            Err(_) => refused += 1,
            Ok(answers) => {
                for (stream, expected) in &contents {
                    match answers.get(stream) {
                        Some(Ok(read)) if read == expected => {}
                        Some(Err(_)) => {}
                        wrong => silent.push(format!(
                            "{what}: {stream}: {:?}",
                            wrong.map(|w| w.as_ref().map(Vec::len))
                        )),
                    }
                }
                if answers.len() > contents.len() {
                    silent.push(format!("{what}: other names"));
                }
            }
        }
        let repaired = StoreMaintenance::of(&path)
            .unwrap()
            .repair(Box::new(|_, _| Vec::new()))
            .await;
        match repaired {
            Err(error) => lost.push(format!("{what}: repair: {error}")),
            Ok(report) => {
                let answers = answers(&path).await.unwrap();
                for (stream, expected) in &contents {
                    let is_cut = report.cut.iter().any(|cut| cut.stream.as_str() == stream);
                    let read = answers.get(stream);
                    let is_whole = matches!(read, Some(Ok(read)) if read == expected);
                    if !is_whole && !is_cut && which != 1 {
                        lost.push(format!("{what}: {stream} after the repair"));
                    }
                }
            }
        }
    }
    println!("{count} damages, {refused} of them kept the store closed");
    assert!(silent.is_empty(), "wrong without an error: {silent:#?}");
    assert!(lost.is_empty(), "lost: {lost:#?}");
}
