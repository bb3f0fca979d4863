//! Faults below the command, by a library that is loaded before the system's.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Allstop, Place};

/// The library's source; its first comment describes the rules.
const SOURCE: &str = include_str!("fault.c");

/// Faults below the command. They can be changed while it runs.
#[derive(Debug)]
pub(crate) struct Fault {
    library: PathBuf,
    rules: PathBuf,
    seen: PathBuf,
}

impl Fault {
    /// Faults by these rules, one a line.
    pub(crate) fn new(place: &Place, rules: &str) -> Self {
        let fault = Self {
            library: library(),
            rules: place.path("fault-rules"),
            seen: place.path("fault-seen"),
        };
        fault.set(rules);
        fault
    }

    /// Replaces the rules: takes effect at once, and lets go what hangs by a rule that is gone.
    pub(crate) fn set(&self, rules: &str) {
        fs::write(&self.rules, rules).expect("a file for the rules");
    }

    /// The command, with the faults.
    pub(crate) fn below<'a>(&self, command: Allstop<'a>) -> Allstop<'a> {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAULT_RULES", &self.rules)
            .env("FAULT_SEEN", &self.seen)
    }

    /// The calls that were hit so far: call, action, path and time, one a line.
    pub(crate) fn seen(&self) -> String {
        fs::read_to_string(&self.seen).unwrap_or_default()
    }
}

/// Builds the library, once for all tests of this source.
fn library() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("fault-{:x}.so", hasher.finish()));
    if library.exists() {
        return library;
    }
    let mine = tempfile::NamedTempFile::new_in(folder).expect("a file in the build folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/fault.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([mine.path(), &source])
        .arg("-ldl")
        .status()
        .expect("the C compiler that the store is built with");
    assert!(built.success());
    // Others may build it at the same time: the last one wins, and all are the same.
    mine.persist(&library).expect("within one folder");
    library
}
