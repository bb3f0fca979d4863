//! Any command line, and a denied program. If the policy allows the line, a real shell that runs the line must not run
//! this program.
#![no_main]

use std::cell::RefCell;
use std::path::PathBuf;

use allstop_tools::{PermissionDecision, PermissionPolicy};
use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tools/tests/it/denied_program/line.rs"]
mod line;
#[path = "../../crates/tools/tests/it/denied_program/sandbox.rs"]
mod sandbox;
#[path = "../shell.rs"]
mod shell;

impl line::Choices for Unstructured<'_> {
    fn below(&mut self, bound: usize) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.int_in_range(0..=bound.checked_sub(1)?).ok()
    }
}

/// The sandbox and its folder. The folder is removed at the end of the thread.
struct Place {
    sandbox: sandbox::Sandbox,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        let name = format!("allstop-fuzz-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("nobody else has this name");
        Self {
            sandbox: sandbox::Sandbox::new(&folder),
            folder,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If the removal fails, the folder stays in the temporary folder of the system.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fuzz_target!(|data: &[u8]| {
    thread_local!(static PLACE: RefCell<Place> = RefCell::new(Place::new()));
    let Some(line) = line::line(&mut Unstructured::new(data)) else {
        return;
    };
    let deny = ["shell:erase", "shell:tool push"];
    let policy =
        PermissionPolicy::parse(&["shell"], &[], &deny).expect("the rules are well-formed");
    if shell::decide(&policy, &line) == PermissionDecision::Allow {
        let ran = PLACE.with_borrow_mut(|place| place.sandbox.runs_denied(&line));
        assert!(!ran, "it ran: {line:?}");
    }
});
