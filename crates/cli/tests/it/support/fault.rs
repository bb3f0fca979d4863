//! Faults below the command, by a library that is loaded before the system's.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Allstop, Place, eventually};

/// A fault below the command.
#[derive(Debug)]
pub(crate) struct Fault {
    library: PathBuf,
    name: &'static str,
    seen: PathBuf,
    when: Option<PathBuf>,
}

impl Fault {
    /// A fault that is there from the beginning.
    pub(crate) fn new(place: &Place, name: &'static str) -> Self {
        let library = place.path("fault.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/fault.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status()
            .expect("the C compiler that the store is built with");
        assert!(built.success());
        Self {
            library,
            name,
            seen: place.path("fault-seen"),
            when: None,
        }
    }

    /// A fault that is there once the command has made this file.
    pub(crate) fn when(mut self, file: PathBuf) -> Self {
        self.when = Some(file);
        self
    }

    /// The command, with the fault.
    pub(crate) fn below<'a>(&self, command: Allstop<'a>) -> Allstop<'a> {
        let command = command
            .env("LD_PRELOAD", &self.library)
            .env("FAULT", self.name)
            .env("FAULT_SEEN", &self.seen);
        match &self.when {
            Some(file) => command.env("FAULT_WHEN", file),
            None => command,
        }
    }

    /// Waits until the command has met it.
    #[track_caller]
    pub(crate) fn wait_seen(&self) {
        eventually(self.name, || self.seen.exists().then_some(()));
    }
}
