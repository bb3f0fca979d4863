//! External parts of the tests, such as client libraries, which `cargo xtask parts` downloads.

use std::path::PathBuf;

/// Folder of a part; `None` if the part is excluded on this machine.
#[expect(clippy::print_stdout, reason = "reports the skipped tests")]
pub(crate) fn part(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("the path of the test");
    let is_known = |parts: &PathBuf| {
        parts.join(name).join(".complete").is_file()
            || parts.join(format!("{name}.left_out")).is_file()
    };
    let parts = test
        .ancestors()
        .map(|folder| folder.join("parts"))
        .find(is_known)
        .expect("the part is missing: run `cargo xtask parts` and try again");
    match std::fs::read_to_string(parts.join(format!("{name}.left_out"))) {
        Ok(why) => {
            println!("left out: {why}");
            None
        }
        Err(_) => Some(parts.join(name)),
    }
}
