//! Property test: a line that the policy allows does not run a denied program. The test generates lines, and a real
//! shell runs the allowed ones. The fuzz target `denied_program` runs the same check on an unlimited number of lines.

use allstop_tools::{PermissionDecision, PermissionPolicy};

use crate::permission::shell;

mod line;
mod sandbox;

/// Number of lines in one run of the test.
const LINES: u32 = 1_500;

/// Generator `SplitMix64`: the same pseudo-random numbers in each run.
struct Seeded(u64);

impl line::Choices for Seeded {
    fn below(&mut self, bound: usize) -> Option<usize> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).ok()
    }
}

#[tokio::test]
async fn allowed_line_does_not_run_a_denied_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut sandbox = sandbox::Sandbox::new(folder.path());
    assert!(sandbox.runs_denied("env erase f"), "the sandbox detects it");
    assert!(
        sandbox.runs_denied("tool -C . push"),
        "the sandbox detects it"
    );
    assert!(
        !sandbox.runs_denied("tool pull; echo erase"),
        "a word alone is not detected"
    );
    let deny = ["shell:erase", "shell:tool push"];
    let policy = PermissionPolicy::parse(&["shell"], &[], &deny).unwrap();
    let mut choices = Seeded(20);
    let mut allowed = 0;
    for _ in 0..LINES {
        let line = line::line(&mut choices).expect("it never ends");
        if shell(&policy, &line) == PermissionDecision::Allow {
            allowed += 1;
            assert!(!sandbox.runs_denied(&line), "it ran: {line:?}");
        }
    }
    assert!(allowed > LINES / 50, "only {allowed} lines were allowed");
}
