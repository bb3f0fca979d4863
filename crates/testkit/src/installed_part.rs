//! Parts that tests need, such as servers, and that `cargo xtask parts` has fetched.

use std::path::PathBuf;

/// Finds a part in the build folder that contains this program.
///
/// The folder is found from the path of the program, not from the environment. So this function works for every profile
/// and every `CARGO_TARGET_DIR`.
///
/// # Panics
/// Panics if the part was never fetched.
pub(crate) fn folder_of(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let mut folders = program
        .ancestors()
        .map(|folder| folder.join("parts").join(name));
    let folder = folders.find(|folder| folder.join(".complete").is_file());
    folder.unwrap_or_else(|| {
        let program = program.display();
        panic!("the part {name} is missing (looked above {program}): run `cargo xtask parts`")
    })
}
