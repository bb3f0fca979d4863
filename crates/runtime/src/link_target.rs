//! The target of a symbolic link.

use std::path::{Path, PathBuf};

/// Maximum number of links on the way to a file, as for the system.
const LINKS_MAX: usize = 40;

/// Follows the symbolic links of the file itself. The last target may be missing. A path that is no link stays as it is,
/// even if a folder on the way is a link.
pub fn link_target(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = std::fs::read_link(&target) else {
            break;
        };
        target = target.with_file_name("").join(next);
    }
    target
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_a_missing_target() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        symlink("b", path("a")).unwrap();
        symlink(path("c"), path("b")).unwrap();
        for name in ["a", "b", "c"] {
            assert_eq!(link_target(&path(name)), path("c"));
        }
        symlink("self", path("self")).unwrap();
        assert_eq!(link_target(&path("self")), path("self"));
    }
}
