//! Injects faults into system calls of the command, with a preloaded library.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Allstop, Place};

/// C source of the library. Its first comment describes the rules.
const SOURCE: &str = include_str!("fault.c");

/// Faults in system calls of a command. The rules can be changed while the command runs.
#[derive(Debug)]
pub(crate) struct Fault {
    library: PathBuf,
    rules: PathBuf,
    seen: PathBuf,
}

impl Fault {
    /// Creates faults by these rules, one rule per line.
    pub(crate) fn new(place: &Place, rules: &str) -> Self {
        let fault = Self {
            library: library(),
            rules: place.path("fault-rules"),
            seen: place.path("fault-seen"),
        };
        fault.set(rules);
        fault
    }

    /// Replaces the rules with immediate effect. Calls that hang because of a removed rule continue.
    pub(crate) fn set(&self, rules: &str) {
        fs::write(&self.rules, rules).expect("a file for the rules");
    }

    /// Adds the faults to the command.
    pub(crate) fn below<'a>(&self, command: Allstop<'a>) -> Allstop<'a> {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAULT_RULES", &self.rules)
            .env("FAULT_SEEN", &self.seen)
    }

    /// System calls that were hit so far, one per line: call, action, path and time.
    pub(crate) fn seen(&self) -> String {
        fs::read_to_string(&self.seen).unwrap_or_default()
    }
}

/// Builds the library, once for all tests with this source.
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
    // Other tests may build the same library concurrently. Each replaces the file, and all files are equal.
    mine.persist(&library).expect("within one folder");
    library
}
