//! Missing files, long files, files of other users, and other file types.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// Creates a repository with a folder `a/b`. Returns its root.
fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    (place, root)
}

/// Returns the only reason why a file was left out.
fn reason(found: &ProjectInstructions) -> &str {
    assert!(found.files.is_empty(), "{found:?}");
    let [reason] = &*found.left_out else {
        panic!("{found:?}");
    };
    reason
}

#[test]
fn files_are_read_from_the_root_down() {
    let (_place, root) = place();
    for (file, text) in [
        ("AGENTS.md", "root\n"),
        ("a/b/AGENTS.md", "deep\n"),
        ("AGENTS.txt", "no\n"),
    ] {
        fs::write(root.join(file), text).unwrap();
    }
    let found = ProjectInstructions::read(&root, &root.join("a/b"));
    let paths: Vec<&str> = found.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["AGENTS.md", "a/b/AGENTS.md"]);
    let text = found.text();
    let (first, second) = (text.find("root\n"), text.find("deep"));
    assert!(first.is_some() && first < second, "{text}");
    // The instructions of a subfolder do not apply to the folder above it.
    let above = ProjectInstructions::read(&root, &root.join("a"));
    assert_eq!(above.files.len(), 1);
    assert_eq!(
        ProjectInstructions::read(&root.join("a"), &root.join("a")).text(),
        ""
    );
}

#[test]
fn long_files_are_cut_at_a_character() {
    let (_place, root) = place();
    // Each character has three bytes, and the limit is not a multiple of three.
    fs::write(root.join("AGENTS.md"), "€".repeat(FILE_BYTES_MAX)).unwrap();
    let found = ProjectInstructions::read(&root, &root);
    let [file] = &*found.files else {
        panic!("{found:?}")
    };
    assert!(
        file.is_cut && file.text.len() <= FILE_BYTES_MAX && file.text.len() > FILE_BYTES_MAX - 3
    );
    assert_eq!(file.len, 3 * FILE_BYTES_MAX as u64);
    assert!(found.text().ends_with(" bytes]"), "says that it is cut");
}

#[test]
fn all_files_together_have_a_limit() {
    let (_place, root) = place();
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    let mut folder = root.clone();
    for name in ["", "a", "b", "c"] {
        folder.push(name);
        fs::write(folder.join("AGENTS.md"), "x".repeat(FILE_BYTES_MAX)).unwrap();
    }
    let found = ProjectInstructions::read(&root, &root.join("a/b/c"));
    assert_eq!(found.files.len(), 2);
    assert_eq!(found.left_out.len(), 2);
    assert!(found.left_out[0].contains("65536 bytes"), "{found:?}");
}

#[test]
fn file_of_100_mb_costs_no_more_than_its_beginning() {
    let (_place, root) = place();
    let path = root.join("AGENTS.md");
    fs::write(&path, "x".repeat(FILE_BYTES_MAX)).unwrap();
    let file = fs::File::options().append(true).open(&path).unwrap();
    file.set_len(100 * 1024 * 1024).unwrap();
    let found = ProjectInstructions::read(&root, &root);
    assert!(found.files[0].is_cut);
    assert!(found.text().len() < 2 * FILE_BYTES_MAX);
}

#[test]
fn files_that_are_no_text_are_left_out() {
    let (_place, root) = place();
    let path = root.join("AGENTS.md");
    fs::write(&path, b"gr\xfcn").unwrap();
    let read = || ProjectInstructions::read(&root, &root);
    assert_eq!(
        reason(&read()),
        "`AGENTS.md` is not UTF-8: byte 2 is invalid"
    );
    fs::write(&path, b"a\0b").unwrap();
    assert_eq!(reason(&read()), "`AGENTS.md` is a binary file");
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    assert!(reason(&read()).contains("a named pipe"), "{:?}", read());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(reason(&read()).contains("is a folder"), "{:?}", read());
}

#[test]
fn links_stay_in_the_repository() {
    let (_place, root) = place();
    let (_outside, elsewhere) = place();
    fs::write(elsewhere.join("secret"), "secret").unwrap();
    let path = root.join("AGENTS.md");
    symlink(elsewhere.join("secret"), &path).unwrap();
    let found = ProjectInstructions::read(&root, &root);
    assert!(reason(&found).contains("outside"), "{found:?}");
    fs::remove_file(&path).unwrap();
    fs::write(root.join("CLAUDE.md"), "inside").unwrap();
    symlink("CLAUDE.md", &path).unwrap();
    let found = ProjectInstructions::read(&root, &root);
    assert_eq!(found.files[0].text, "inside");
}

#[test]
fn file_of_another_user_is_refused() {
    let (_place, root) = place();
    let file = FileBeginning {
        bytes: Vec::new(),
        len: 0,
        owner: u32::MAX - 1,
    };
    let refused = check_owner(&file, &root).unwrap_err();
    assert!(refused.contains("another user"), "{refused}");
}
