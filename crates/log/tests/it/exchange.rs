//! Export and import of a store as JSON lines.

use std::io;

use allstop_log::{
    AppendId, ExchangeError, ExchangeReport, ExportLines, LockAttempt, Log, MemoryLog, SqliteLog,
    StreamName, Version, export, import,
};

use crate::damage::{DAMAGES, change};

const STREAMS: [(&str, u64); 3] = [("session/a", 600), ("session/b", 20), ("task/c", 1)];

fn body(stream: &str, n: u64) -> String {
    // Spaces and numbers stay as they are.
    format!(r#"{{"v":1, "stream":"{stream}","n":{n},"ratio":1.10}}"#)
}

async fn filled(log: &dyn Log) {
    for (stream, len) in STREAMS {
        for n in 0..len {
            let id = AppendId(u128::from(n));
            let append = log.append(
                &StreamName::new(stream),
                Version(n),
                id,
                vec![body(stream, n).into()],
            );
            append.await.unwrap();
        }
    }
}

async fn exported(log: &dyn Log) -> (String, ExchangeReport) {
    let mut text = String::new();
    let mut write = |line: &str| {
        text.push_str(line);
        io::Result::Ok(())
    };
    let report = export(log, &mut write).await.unwrap();
    (text, report)
}

async fn imported(log: &dyn Log, text: &str) -> Result<ExchangeReport, ExchangeError> {
    let mut lines = text.lines().map(|line| Ok(line.to_owned()));
    import(log, ExportLines::new(&mut lines)?).await
}

#[tokio::test]
async fn export_and_import_keep_every_byte() {
    let log = MemoryLog::new();
    filled(&log).await;
    let (text, report) = exported(&log).await;
    assert_eq!((report.streams, report.records), (3, 621));
    let folder = tempfile::tempdir().unwrap();
    let copy = SqliteLog::open(folder.path().join("store.db"))
        .await
        .unwrap();
    // The export is cut in the middle of a stream.
    let half: Vec<_> = text.lines().take(400).collect();
    let cut = imported(&copy, &half.join("\n")).await;
    assert!(matches!(cut, Err(ExchangeError::Incomplete)), "{cut:?}");
    let cut = imported(&copy, &text[..text.len() / 2]).await;
    assert!(matches!(cut, Err(ExchangeError::Incomplete)), "{cut:?}");
    let report = imported(&copy, &text).await.unwrap();
    assert_eq!(
        (report.streams, report.records, report.left_out),
        (3, 222, Vec::new())
    );
    for (stream, len) in STREAMS {
        let read = copy
            .read(&StreamName::new(stream), Version(1), usize::MAX)
            .await
            .unwrap();
        assert_eq!(read.len() as u64, len);
        for (n, (_, record)) in (0..).zip(read) {
            assert_eq!(record, body(stream, n));
        }
    }
    assert_eq!(exported(&copy).await.0, text);
    copy.close().await;
}

#[tokio::test]
async fn stream_with_other_records_or_in_use_is_left_out() {
    let log = MemoryLog::new();
    filled(&log).await;
    let (text, _) = exported(&log).await;
    let other = MemoryLog::new();
    let stream = StreamName::new("session/b");
    let append = other.append(&stream, Version(0), AppendId(1), vec!["{}".into()]);
    append.await.unwrap();
    let used = StreamName::new("task/c");
    let LockAttempt::Locked(_lock) = other.try_lock(&used).await.unwrap() else {
        panic!("no other process has the lock");
    };
    let report = imported(&other, &text).await.unwrap();
    let left: Vec<_> = report
        .left_out
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!((left, report.streams), (vec!["session/b", "task/c"], 1));
    assert_eq!(other.read(&stream, Version(1), 10).await.unwrap().len(), 1);
    assert_eq!(other.read(&used, Version(1), 10).await.unwrap().len(), 0);
}

#[tokio::test]
async fn damaged_stream_is_left_out_of_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let log = SqliteLog::open(&path).await.unwrap();
    filled(&log).await;
    log.write_back().await.unwrap();
    log.close().await;
    change(&path, DAMAGES[0]);
    let log = SqliteLog::open(&path).await.unwrap();
    let (text, report) = exported(&log).await;
    assert_eq!(report.left_out.len(), 1);
    assert_eq!(report.left_out[0].0.as_str(), "session/b");
    assert!(text.contains("session/a") && !text.contains("session/b"));
    log.close().await;
}

#[tokio::test]
async fn text_that_is_no_export_is_refused_with_its_line() {
    let header = "{\"schema\":\"allstop.store/1\"}";
    let end = "{\"records\":0}";
    let gap = "{\"stream\":\"s\",\"number\":2,\"record\":{}}";
    for (text, wrong) in [
        ("hello".to_owned(), 1),
        ("{\"schema\":\"allstop.store/2\"}".to_owned(), 1),
        (format!("{header}\n{{}}"), 2),
        (format!("{header}\n{gap}"), 2),
        (format!("{header}\n{end}\n{end}"), 3),
        (format!("{header}\n{{\"records\":3}}"), 2),
        (String::new(), 1),
    ] {
        let refused = imported(&MemoryLog::new(), &text).await;
        let Err(ExchangeError::Line { line, .. }) = refused else {
            panic!("{text}: {refused:?}");
        };
        assert_eq!(line, wrong, "{text}");
    }
}
