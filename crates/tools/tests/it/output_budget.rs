//! The budget for output files: the oldest unused files make room for new output, and every cut is named.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_tools::{BackgroundHost as _, removed_output};
use allstop_tools::{BoundedOutput, OutputBudget, OutputBudgetLimits, OutputFolder, OutputLimits};
use serde_json::json;

use crate::support::{Session, wait_until};

const KIB: usize = 1024;
const MIB: u64 = 1024 * 1024;

/// One store, as one process uses it.
struct Store {
    budget: Arc<OutputBudget>,
    root: PathBuf,
}

impl Store {
    fn new(root: &Path, session_bytes_max: u64, store_bytes_max: u64) -> Self {
        let limits = OutputBudgetLimits::default()
            .session_bytes_max(session_bytes_max)
            .store_bytes_max(store_bytes_max);
        Self {
            budget: Arc::new(OutputBudget::new(root, limits)),
            root: root.to_owned(),
        }
    }

    fn folder(&self, session: &str) -> OutputFolder {
        OutputFolder::new(self.root.join(session)).within(Arc::clone(&self.budget))
    }

    /// An output of this size that can continue.
    fn output(&self, session: &str, kib: usize) -> BoundedOutput {
        let folder = Arc::new(self.folder(session));
        let mut output = BoundedOutput::new(OutputLimits::default(), folder);
        for _ in 0..kib {
            output.push(&[b'x'; KIB]);
        }
        output
    }

    /// The file of an output of this size that has ended. Its last write was this number of seconds ago.
    fn ended(&self, session: &str, kib: usize, seconds_ago: u64) -> PathBuf {
        let output = self.output(session, kib);
        let path = output.file().unwrap().to_owned();
        let modified = SystemTime::now() - Duration::from_secs(seconds_ago);
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        path
    }

    /// Size of all files.
    fn bytes(&self) -> u64 {
        let sessions = std::fs::read_dir(&self.root).unwrap();
        let files =
            sessions.flat_map(|session| std::fs::read_dir(session.unwrap().path()).unwrap());
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    }
}

fn size(path: &Path) -> usize {
    usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn limit_of_a_session_removes_its_oldest_outputs() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path(), MIB, 100 * MIB);
    let of_other = store.ended("other", 400, 100);
    let first = store.ended("session", 400, 30);
    let second = store.ended("session", 400, 20);
    let third = store.output("session", 400);
    let note = std::fs::read_to_string(&first).unwrap();
    assert_eq!(
        note,
        "[Allstop removed this output of 409,600 bytes: the output files of the session have reached the limit of 1 MiB]\n"
    );
    let removed = "removed: the output files of the session have reached the limit of 1 MiB";
    assert_eq!(removed_output(&first).as_deref(), Some(removed));
    assert_eq!(removed_output(&second), None);
    for whole in [&of_other, &second, third.file().unwrap()] {
        assert_eq!(size(whole), 400 * KIB);
    }
    let text = third.text();
    assert!(text.contains("the whole output is in"), "{text}");
}

#[test]
fn limit_of_the_store_removes_the_oldest_outputs_of_all_sessions() {
    let root = tempfile::tempdir().unwrap();
    // Two processes use one store.
    let (one, other) = (
        Store::new(root.path(), 10 * MIB, MIB),
        Store::new(root.path(), 10 * MIB, MIB),
    );
    let second = one.ended("a", 300, 20);
    let first = other.ended("b", 300, 30);
    let third = one.ended("a", 300, 10);
    let fourth = other.output("b", 300);
    let note = std::fs::read_to_string(&first).unwrap();
    let reason = "the output files of all sessions have reached the limit of 1 MiB";
    assert!(note.contains(reason), "{note}");
    for whole in [&second, &third, fourth.file().unwrap()] {
        assert_eq!(size(whole), 300 * KIB);
    }
    assert!(one.bytes() <= MIB);
}

#[test]
fn output_in_use_stays_and_the_new_output_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path(), MIB, 100 * MIB);
    let in_use = store.output("session", 900);
    let cut = store.output("session", 400);
    assert_eq!(size(in_use.file().unwrap()), 900 * KIB);
    let file = cut.file().unwrap();
    let reason = "the output files of the session have reached the limit of 1 MiB";
    let kept = 124 * KIB;
    let expected = format!(
        "the first {kept} bytes are in {}, then {reason} …]",
        file.display()
    );
    assert!(cut.text().contains(&expected), "{}", cut.text());
    let in_file = std::fs::read_to_string(file).unwrap();
    let (output, end) = in_file.split_at(kept);
    assert!(output.bytes().all(|byte| byte == b'x'));
    assert_eq!(end, format!("\n[further output is not kept: {reason}]\n"));
    let refused = store.output("session", 400);
    assert_eq!(size(file), in_file.len(), "it is in use, too");
    assert_eq!(refused.file(), None);
    let expected = format!("they are lost, because {reason} …]");
    assert!(refused.text().contains(&expected), "{}", refused.text());
    // After the end of the first output, there is room again.
    drop(in_use);
    let whole = store.output("session", 400);
    assert_eq!(size(whole.file().unwrap()), 400 * KIB);
}

#[test]
fn endless_outputs_stay_within_the_limits() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path(), MIB, 2 * MIB);
    for number in 0..30 {
        let session = format!("session-{}", number % 4);
        store.ended(&session, 100 + 37 * number % 900, 1_000 - number as u64);
        assert!(store.bytes() <= 2 * MIB, "{}", store.bytes());
    }
}

/// A child process writes an output, and is killed.
#[test]
fn output_of_a_killed_process_can_be_removed() {
    let root = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "output_budget::the_child_with_an_output",
            "--nocapture",
        ])
        .env("ALLSTOP_TEST_OUTPUT_ROOT", root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let file = lines
        .map_while(Result::ok)
        .find_map(|line| Some(PathBuf::from(line.split_once("file: ")?.1)))
        .expect("the child prints its file");
    let store = Store::new(root.path(), MIB, 100 * MIB);
    let cut = store.output("session", 400);
    assert!(
        cut.text().contains("then the output files"),
        "{}",
        cut.text()
    );
    assert_eq!(size(&file), 900 * KIB, "the child uses it");
    child.kill().unwrap();
    child.wait().unwrap();
    let whole = store.output("session", 400);
    assert_eq!(size(whole.file().unwrap()), 400 * KIB);
    let note = std::fs::read_to_string(&file).unwrap();
    assert!(
        note.starts_with("[Allstop removed this output of 921,600 bytes"),
        "{note}"
    );
}

#[test]
fn the_child_with_an_output() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the parent test names its folder"
    )]
    let Some(root) = std::env::var_os("ALLSTOP_TEST_OUTPUT_ROOT") else {
        return;
    };
    let store = Store::new(Path::new(&root), MIB, 100 * MIB);
    let output = store.output("session", 900);
    writeln!(
        std::io::stdout(),
        "file: {}",
        output.file().unwrap().display()
    )
    .unwrap();
    // Waits until the parent kills this process.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

/// A session whose output files have a limit of 1 MiB.
fn limited_session() -> Session {
    Session::with(
        |workspace| workspace,
        |mut shell| {
            let spill = shell.output_folder.path().to_owned();
            let store = Store::new(spill.parent().unwrap(), MIB, 100 * MIB);
            shell.output_folder = Arc::new(store.folder("spill"));
            shell
        },
    )
}

const PRINTS_600_KIB: &str = "head -c 614400 /dev/zero | tr '\\0' x";

#[tokio::test]
async fn model_reads_the_note_of_a_removed_output() {
    let session = limited_session();
    let shell = json!({"command": PRINTS_600_KIB});
    let first = session.call("shell", shell.clone()).await.unwrap();
    let (_, rest) = first.split_once("the whole output is in ").unwrap();
    let (file, _) = rest.split_once(" …]").unwrap();
    session.call("shell", shell).await.unwrap();
    let note = session.call("read", json!({"path": file})).await.unwrap();
    assert_eq!(
        note,
        "[Allstop removed this output of 614,400 bytes: the output files of the session have reached the limit of 1 MiB]\n"
    );
}

#[tokio::test]
async fn ended_background_work_names_its_removed_output() {
    let session = limited_session();
    let background = json!({"command": PRINTS_600_KIB, "background": true});
    session.call("shell", background).await.unwrap();
    let work = session.host.works().remove(0);
    work.ended().await;
    let file = work.output_file.clone().unwrap();
    let whole = format!("output in {}", file.display());
    assert_eq!(work.output_place(), Some(whole));
    wait_until("the file is closed", || {
        File::open(&file).unwrap().try_lock().is_ok()
    })
    .await;
    session
        .call("shell", json!({"command": PRINTS_600_KIB}))
        .await
        .unwrap();
    let removed = format!("output removed from {} to free space", file.display());
    assert_eq!(work.output_place(), Some(removed.clone()));
    let list = session.call("background", json!({"action": "list"})).await;
    assert!(list.unwrap().ends_with(&format!("{removed}\n")));
    let text = work.output();
    let expected = format!(
        "bytes left out; they were removed from {} to free space …]",
        file.display()
    );
    assert!(text.contains(&expected), "{text}");
    let slice = work.output_from(100_000, 1_000);
    assert!(slice.missing_bytes > 400_000, "{slice:?}");
    assert!(slice.text.bytes().all(|byte| byte == b'x'));
}

#[tokio::test]
async fn output_of_running_background_work_stays() {
    let session = limited_session();
    let command = format!("{PRINTS_600_KIB}; exec sleep 600");
    let background = json!({"command": command, "background": true});
    session.call("shell", background).await.unwrap();
    let work = session.host.works().remove(0);
    let file = work.output_file.clone().unwrap();
    wait_until("all is in the file", || size(&file) == 600 * KIB).await;
    let cut = session
        .call("shell", json!({"command": PRINTS_600_KIB}))
        .await
        .unwrap();
    let reason = "then the output files of the session have reached the limit of 1 MiB";
    assert!(cut.contains(reason), "{cut}");
    assert_eq!(size(&file), 600 * KIB);
    session
        .call("background", json!({"action": "stop", "id": "bg_1"}))
        .await
        .unwrap();
}
