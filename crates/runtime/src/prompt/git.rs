//! The git repository around a folder. Reads only files and starts no program, because a repository can name programs
//! that git would run.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use allstop_tools::Workspace;

/// Maximum size of `HEAD` or of a `.git` file, in bytes. Such a file contains one path and a keyword.
const POINTER_BYTES_MAX: usize = 8 * 1024;
/// Number of displayed digits of a commit's id. In a large repository, git also displays this number of digits.
const COMMIT_DIGITS: usize = 10;
/// Files in git's folder (`.git`) that exist only during an operation.
const OPERATIONS: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisection"),
];

/// A repository that contains a folder.
#[derive(Debug)]
pub(super) struct Repository {
    root: PathBuf,
    git_folder: PathBuf,
}

/// Checked-out branch or commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GitHead {
    Branch(String),
    /// The first digits of a commit's id.
    Detached(String),
}

impl Repository {
    /// Finds the repository around an absolute, resolved folder. The search ends at a folder of another owner.
    /// Otherwise a user who can write to `/tmp` could turn `/tmp` into a repository that contains the folders of other
    /// users.
    pub(super) fn around(folder: &Path) -> Option<Self> {
        let owner = folder.metadata().ok()?.uid();
        let is_own = |path: &Path| path.metadata().is_ok_and(|it| it.uid() == owner);
        folder
            .ancestors()
            .take_while(|ancestor| is_own(ancestor))
            .find_map(|root| {
                let git_folder = git_folder(root).filter(|git| is_own(git))?;
                let root = root.to_owned();
                Some(Self { root, git_folder })
            })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn head(&self) -> Option<GitHead> {
        let head = first_line(&self.git_folder, "HEAD")?;
        if let Some(branch) = head.strip_prefix("ref: refs/heads/") {
            return Some(GitHead::Branch(branch.to_owned()));
        }
        let is_commit = head.len() >= 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = head.get(..COMMIT_DIGITS).filter(|_| is_commit)?;
        Some(GitHead::Detached(digits.to_owned()))
    }

    /// Returns the operation in progress, if any.
    pub(super) fn operation(&self) -> Option<&'static str> {
        let mut operations = OPERATIONS.iter();
        let (_, words) = operations.find(|(file, _)| self.git_folder.join(file).exists())?;
        Some(words)
    }
}

/// Returns git's folder of the repository with this root: `.git`, or the folder that the file `.git` names in a
/// worktree or submodule.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let path = root.join(".git");
    if path.is_dir() {
        return Some(path);
    }
    let line = first_line(root, ".git")?;
    let named = root.join(line.strip_prefix("gitdir: ")?);
    named.is_dir().then_some(named)
}

fn first_line(folder: &Path, file: &str) -> Option<String> {
    let folder = Workspace::new(folder).ok()?;
    let read = folder.read_beginning(file, POINTER_BYTES_MAX).ok()??;
    let text = String::from_utf8(read.bytes).ok()?;
    text.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn head_is_a_branch_a_commit_or_unreadable() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let below = root.join("a/b");
        fs::create_dir_all(&below).unwrap();
        assert!(Repository::around(&below).is_none());
        fs::create_dir(root.join(".git")).unwrap();
        let repository = Repository::around(&below).unwrap();
        assert_eq!(repository.root(), root);
        let head = |text: &str| {
            fs::write(root.join(".git/HEAD"), text).unwrap();
            repository.head()
        };
        assert_eq!(repository.head(), None);
        let branch = |name: &str| Some(GitHead::Branch(name.to_owned()));
        assert_eq!(head("ref: refs/heads/fix/it\n"), branch("fix/it"));
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let detached = Some(GitHead::Detached("0123456789".to_owned()));
        assert_eq!(head(commit), detached);
        assert_eq!(head("garbage"), None);
        assert_eq!(repository.operation(), None);
        fs::create_dir(root.join(".git/rebase-merge")).unwrap();
        assert_eq!(repository.operation(), Some("a rebase"));
    }

    #[test]
    fn worktree_names_its_folder_in_a_file() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("main/.git/worktrees/w")).unwrap();
        fs::create_dir(root.join("w")).unwrap();
        fs::write(root.join("w/.git"), "gitdir: ../main/.git/worktrees/w\n").unwrap();
        let head = root.join("main/.git/worktrees/w/HEAD");
        fs::write(head, "ref: refs/heads/w\n").unwrap();
        let repository = Repository::around(&root.join("w")).unwrap();
        assert_eq!(repository.root(), root.join("w"));
        assert_eq!(repository.head(), Some(GitHead::Branch("w".to_owned())));
    }
}
