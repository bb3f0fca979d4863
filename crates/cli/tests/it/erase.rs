//! `sessions rm` removes a session from every file, and names the rest.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::chat_user::{CTRL_D, ChatUser};
use crate::support::fault::Fault;
use crate::support::terminal::Terminal;
use crate::support::wait::eventually;
use crate::support::{Allstop, Place, Signal};

const SECRET: &str = "PIN-4711-XQ";

/// A turn whose command prints more than the conversation keeps, and the secret in the middle.
const TELLS: &str = "replies: [{calls: [{tool: shell, arguments: {command: 'seq 9000; echo PIN-4711-XQ; seq 9000'}}]}, \
                     {text: 'The PIN-4711-XQ is noted.'}]";

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

/// Files of the store with this word: the store, its output files and its history.
fn files_with(place: &Place, word: &str) -> Vec<PathBuf> {
    let mut files = files_below(place.store().parent().expect("a folder"));
    files.retain(|file| {
        let is_of_store = file.to_string_lossy().contains("store.db");
        let bytes = fs::read(file).unwrap_or_default();
        is_of_store
            && bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes())
    });
    files
}

fn rm<'a>(place: &'a Place, ids: &[&str]) -> Allstop<'a> {
    let rm = place
        .allstop()
        .args("sessions rm --store")
        .arg(place.store());
    ids.iter().fold(rm, Allstop::arg)
}

/// Runs a turn with an output file. Returns the session and the folder of its output.
fn told(place: &Place) -> (String, PathBuf) {
    let run = place.run_script(TELLS).arg("--json").arg(SECRET);
    let session = run.end().ok().session();
    let folder = place.path("store.db.output").join(&session);
    assert!(!files_below(&folder).is_empty(), "{}", folder.display());
    (session, folder)
}

#[test]
fn removed_word_is_in_no_file() {
    let place = Place::new();
    let script = place.script(TELLS);
    let chat = place.allstop().args("chat --yes --model").arg(script);
    let chat = ChatUser::with_model(&place, chat, Terminal::new());
    chat.types(&format!("My {SECRET} is secret"))
        .waits_for("is noted.");
    chat.types("/compact").types(CTRL_D);
    chat.leaves_chat();
    let (other, _) = told(&place);
    let before = files_with(&place, SECRET);
    let has = |end: &str| {
        before
            .iter()
            .any(|file| file.to_string_lossy().ends_with(end))
    };
    assert!(has(".history") && has(".txt"), "{before:?}");
    let session = place.sessions().args("list --json").end().ok().stdout;
    assert_eq!(session.matches("session_id").count(), 2, "{session}");
    rm(&place, &["1", "2"]).end().ok();
    assert_eq!(files_with(&place, SECRET), Vec::<PathBuf>::new());
    assert_eq!(files_with(&place, &other), Vec::<PathBuf>::new());
    let compact = place.allstop().args("store compact --store");
    compact.arg(place.store()).end().ok();
    assert_eq!(files_with(&place, SECRET), Vec::<PathBuf>::new());
    let history = fs::read_to_string(place.path("store.db.history")).expect("the history");
    assert!(history.contains("/compact"), "{history}");
}

#[test]
fn session_stays_until_its_output_is_removed() {
    let place = Place::new();
    let (session, folder) = told(&place);
    let fault = Fault::new(&place, "unlink output- EACCES");
    let refused = fault.below(rm(&place, &[&session])).end();
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in [session.as_str(), "output files", "Permission denied"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert!(!refused.stdout.contains("removed"), "{refused:?}");
    assert_eq!(place.only_session(), session);
    rm(&place, &[&session]).end().ok();
    assert!(!folder.exists());
    assert_eq!(files_with(&place, SECRET), Vec::<PathBuf>::new());
}

#[test]
fn kill_during_a_removal_leaves_no_output_without_its_session() {
    let place = Place::new();
    let (session, folder) = told(&place);
    let fault = Fault::new(&place, "sync store.db hang");
    let removing = fault.below(rm(&place, &[&session])).start();
    eventually("the write of the removal", || {
        fault.seen().contains("sync hang").then_some(())
    });
    assert!(!folder.exists());
    removing.end_by(Signal::KILL);
    fault.set("");
    let listed = place.sessions().args("list --json").end().ok().stdout;
    if listed.contains(&session) {
        rm(&place, &[&session]).end().ok();
    }
    assert_eq!(files_with(&place, SECRET), Vec::<PathBuf>::new());
}

#[test]
fn session_in_use_keeps_all_named_sessions() {
    let place = Place::new();
    let (session, folder) = told(&place);
    let hang = "replies: [{text: Never., stall: mid_stream}]";
    let running = place.run_script(hang).arg("another").start();
    let used = eventually("a second session", || {
        let listed = place.sessions().args("list --json").end().ok().stdout;
        let list: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let mut ids = list["sessions"].as_array().into_iter().flatten();
        let id = ids.find(|row| row["session_id"] != session.as_str())?;
        Some(id["session_id"].as_str()?.to_owned())
    });
    let refused = rm(&place, &[&session, &used]).end();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains(&used), "{refused:?}");
    assert_eq!(refused.stdout, "");
    assert!(folder.exists());
    running.end_by(Signal::INT);
    rm(&place, &[&session, &used]).end().ok();
    assert!(!folder.exists());
}

#[test]
fn output_belongs_to_the_store_under_each_of_its_names() {
    let place = Place::new();
    let link = place.path("link.db");
    symlink("store.db", &link).expect("a link");
    let run = place.allstop().args("run --yes --json --model");
    let run = run.arg(place.script(TELLS)).arg("--store").arg(&link);
    let session = run.arg(SECRET).end().ok().session();
    assert!(!place.path("link.db.output").exists());
    rm(&place, &[&session]).end().ok();
    assert_eq!(files_with(&place, SECRET), Vec::<PathBuf>::new());
    assert_eq!(
        files_below(&place.path("store.db.output")),
        Vec::<PathBuf>::new()
    );
}
