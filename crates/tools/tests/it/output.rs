//! Bounded output: its parts in memory and in the file, and the note about the omitted bytes.

use std::io::Write as _;
use std::sync::Arc;

use allstop_tools::{BoundedOutput, OutputFolder, OutputLimits};

fn limits(head: usize, tail: usize, file: u64) -> OutputLimits {
    OutputLimits::default()
        .head_bytes_max(head)
        .tail_bytes_max(tail)
        .file_bytes_max(file)
}

fn output(limits: OutputLimits, folder: &tempfile::TempDir) -> BoundedOutput {
    BoundedOutput::new(
        limits,
        Arc::new(OutputFolder::new(folder.path().join("spill"))),
    )
}

#[test]
fn short_output_is_shown_whole_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for pieces in [
        vec![],
        vec!["abcdefgh"],
        vec!["a", "bcdef", "gh"],
        vec!["abcd", "efgh"],
    ] {
        let mut output = output(limits(4, 4, 100), &folder);
        for piece in &pieces {
            output.push(piece.as_bytes());
        }
        assert_eq!(output.text(), pieces.concat());
        assert_eq!(output.file(), None);
    }
    assert!(!folder.path().join("spill").exists());
}

#[test]
fn long_output_is_in_the_file_from_its_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<u8> = (b'a'..=b'z').cycle().take(1000).collect();
    for size in [1, 3, 7, 8, 9, 100, 1000] {
        let mut output = output(limits(4, 4, 10_000), &folder);
        all.chunks(size).for_each(|piece| output.push(piece));
        let file = output.file().unwrap();
        assert_eq!(std::fs::read(file).unwrap(), all, "pieces of {size}");
        let expected = format!(
            "abcd\n[… 992 of 1000 bytes left out; the whole output is in {} …]\nijkl",
            file.display()
        );
        assert_eq!(output.text(), expected, "pieces of {size}");
    }
}

#[test]
fn output_file_is_private() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let output = BoundedOutput::with_file_now(
        limits(4, 4, 100),
        Arc::new(OutputFolder::new(folder.path().join("spill"))),
    );
    let file = output.file().unwrap();
    assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        std::fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777,
        0o700
    );
}

#[test]
fn bytes_above_the_file_limit_are_counted_and_the_end_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    for size in [1, 7, 100] {
        let mut output = output(limits(4, 4, 20), &folder);
        let all: Vec<u8> = (0..100).map(|number| b'0' + number % 10).collect();
        all.chunks(size).for_each(|piece| output.push(piece));
        let file = output.file().unwrap();
        let in_file = std::fs::read(file).unwrap();
        let (kept, end) = in_file.split_at(20);
        assert_eq!(kept, &all[..20]);
        let reason = "the output file has reached the limit of 20 bytes";
        assert_eq!(
            std::str::from_utf8(end).unwrap(),
            format!("\n[further output is not kept: {reason}]\n")
        );
        let text = output.text();
        let expected = format!(
            "92 of 100 bytes left out; the first 20 bytes are in {}, then {reason} …]",
            file.display()
        );
        assert!(text.contains(&expected), "{text}");
        assert!(text.ends_with("\n6789"), "{text}");
    }
}

#[test]
fn characters_are_never_cut() {
    let folder = tempfile::tempdir().unwrap();
    let all = "aé€😀".repeat(50);
    for head in 0..12 {
        for tail in 0..12 {
            let mut output = output(limits(head, tail, 10_000), &folder);
            output.push(all.as_bytes());
            let text = output.text();
            assert!(
                !text.contains('\u{fffd}'),
                "head {head}, tail {tail}: {text}"
            );
            let (start, rest) = text.split_once("\n[… ").unwrap();
            let (count, rest) = rest.split_once(" of 500 bytes").unwrap();
            let (_, end) = rest.split_once("…]\n").unwrap();
            assert!(all.starts_with(start) && all.ends_with(end));
            assert_eq!(
                start.len() + end.len() + count.parse::<usize>().unwrap(),
                500
            );
            assert!(start.len() + 3 >= head && end.len() + 3 >= tail);
        }
    }
}

#[test]
fn invalid_utf_8_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut output = output(limits(5, 5, 100), &folder);
    output.push(&[0x80; 50]);
    output.push(&[0xf0; 50]);
    let text = output.text();
    assert!(
        text.starts_with('\u{fffd}') && text.contains("bytes left out"),
        "{text}"
    );
}

#[test]
fn output_continues_without_a_file_and_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("spill"), "in the way").unwrap();
    let mut output = output(limits(4, 4, 100), &folder);
    output.push(b"0123456789");
    output.push(b"abcdef");
    let text = output.text();
    assert!(
        text.starts_with("0123\n[… 8 of 16 bytes left out; they are lost, because no file"),
        "{text}"
    );
    assert!(text.ends_with("\ncdef"), "{text}");
}

#[test]
fn full_disk_ends_the_file_and_not_the_output() {
    // A limit on the size of files makes a write fail like a full disk. The limit applies to a whole process, so a
    // child process sets it.
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", "ulimit -f 8; trap '' XFSZ; exec \"$0\" --exact output::the_child_with_a_full_disk --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env("ALLSTOP_TEST_FULL_DISK", folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    assert!(
        said.contains("said: 999992 of 1000000 bytes left out; the first "),
        "{said}"
    );
    assert!(
        said.contains("then writing failed: File too large"),
        "{said}"
    );
}

#[test]
fn the_child_with_a_full_disk() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the parent test names its folder"
    )]
    let Some(folder) = std::env::var_os("ALLSTOP_TEST_FULL_DISK") else {
        return;
    };
    let folder = OutputFolder::new(std::path::PathBuf::from(folder).join("spill"));
    let mut output = BoundedOutput::new(limits(4, 4, u64::MAX), Arc::new(folder));
    for _ in 0..1_000 {
        output.push(&[b'x'; 1_000]);
    }
    let text = output.text();
    let note = text.lines().nth(1).unwrap();
    writeln!(
        std::io::stdout(),
        "said: {}",
        note.trim_start_matches("[… ")
    )
    .unwrap();
    let in_file = std::fs::metadata(output.file().unwrap()).unwrap().len();
    assert!(
        note.contains(&format!("the first {in_file} bytes")),
        "{note}: {in_file}"
    );
}
