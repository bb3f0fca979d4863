//! What the operating system says: which processes carry a mark, which files of a folder this process holds open.

use std::fs;
use std::path::Path;

/// The variable that marks the processes of one run, and whatever they start.
pub(super) const MARK: &str = "ALLSTOP_EXPLORE_RUN";

/// The command lines of the living processes with this mark. A zombie has no environment any more.
pub(super) fn running(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == wanted.as_bytes())
        })
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // One that ends between the two looks has none.
            (!line.is_empty()).then(|| line.trim_end().to_owned())
        })
        .collect()
}

/// The files below this folder that this process holds open.
pub(super) fn open_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.starts_with(folder))
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}
