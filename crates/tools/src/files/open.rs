//! Opens a [`LocatedPath`] folder by folder: never through a symbolic link, only regular files, and never a reserved
//! file. Reserved files, such as the files of the store, are closed to file tools. A FIFO or a device is refused before
//! it is opened. If a FIFO or a device replaces the file after the check, the open does not block.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::FileError;
use super::workspace::LocatedPath;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Handling of missing folders in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFolders {
    Refuse,
    Create,
}

pub(crate) fn folder(located: &LocatedPath) -> Result<OwnedFd, FileError> {
    walk(located, &located.names, MissingFolders::Refuse)
}

/// Opens the parent folder of the path, and returns the last name.
pub(crate) fn parent(
    located: &LocatedPath,
    missing: MissingFolders,
) -> Result<(OwnedFd, &OsStr), FileError> {
    let name = last_name(located)?;
    let above = located
        .names
        .split_last()
        .map_or(&[][..], |(_, above)| above);
    Ok((walk(located, above, missing)?, name))
}

/// The last name of the path.
pub(crate) fn last_name(located: &LocatedPath) -> Result<&OsStr, FileError> {
    located
        .names
        .last()
        .map(std::ffi::OsString::as_os_str)
        .ok_or_else(|| FileError::IsFolder {
            path: located.shown.clone(),
        })
}

/// Opens the regular file of the path for reading.
pub(crate) fn file(located: &LocatedPath) -> Result<(File, Stat), FileError> {
    let (folder, name) = parent(located, MissingFolders::Refuse)?;
    file_in(&folder, name, located)
}

/// Opens a regular file in a folder for reading.
pub(crate) fn file_in(
    folder: &OwnedFd,
    name: &OsStr,
    located: &LocatedPath,
) -> Result<(File, Stat), FileError> {
    // The kind is checked first, because opening a device can already have an effect.
    let Some(_) = regular(folder, name, located)? else {
        return Err(FileError::NotFound {
            path: located.shown.clone(),
        });
    };
    regular_in(folder, name, located)
}

/// Opens a file that was regular at the previous check, and checks again, because the file may have been replaced.
fn regular_in(
    folder: &OwnedFd,
    name: &OsStr,
    located: &LocatedPath,
) -> Result<(File, Stat), FileError> {
    let shown = &located.shown;
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = fs::openat(folder, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP => FileError::Swapped {
            path: shown.to_owned(),
        },
        errno => FileError::io("could not open", shown)(errno),
    })?;
    let stat = fs::fstat(&fd).map_err(FileError::io("could not read the metadata of", shown))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::Swapped {
            path: shown.to_owned(),
        });
    }
    if located.reserved.has(&stat) {
        return Err(reserved(located));
    }
    Ok((File::from(fd), stat))
}

/// Returns the metadata of a regular file; `None` if no file exists. Other kinds of files are an error.
pub(crate) fn regular(
    folder: &OwnedFd,
    name: &OsStr,
    located: &LocatedPath,
) -> Result<Option<Stat>, FileError> {
    let shown = &located.shown;
    let path = || shown.to_owned();
    refuse_if(located.reserved.has_name(folder, name), located)?;
    let stat = match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => {
            return Err(FileError::io("could not read the metadata of", shown)(
                errno,
            ));
        }
    };
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if located.reserved.has(&stat) => return Err(reserved(located)),
        FileType::RegularFile => return Ok(Some(stat)),
        FileType::Directory => return Err(FileError::IsFolder { path: path() }),
        // The path was resolved, so a link here is dangling, or was created after that.
        FileType::Symlink => return Err(FileError::Dangling { path: path() }),
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    };
    Err(FileError::NotAFile { path: path(), kind })
}

/// Fails if a reserved file was found, or if the lookup failed.
fn refuse_if(is_reserved: Result<bool, Errno>, located: &LocatedPath) -> Result<(), FileError> {
    if is_reserved.map_err(FileError::io(
        "could not read the metadata of",
        &located.shown,
    ))? {
        return Err(reserved(located));
    }
    Ok(())
}

fn reserved(located: &LocatedPath) -> FileError {
    FileError::Reserved {
        path: located.shown.clone(),
    }
}

fn walk(
    located: &LocatedPath,
    names: &[std::ffi::OsString],
    missing: MissingFolders,
) -> Result<OwnedFd, FileError> {
    let shown = &located.shown;
    let mut folder = fs::openat(CWD, &located.root, FOLDER, Mode::empty())
        .map_err(FileError::io("could not open", shown))?;
    refuse_if(located.reserved.has_folder(&folder), located)?;
    for name in names {
        refuse_if(located.reserved.has_name(&folder, name), located)?;
        let below = OFlags::NOFOLLOW | FOLDER;
        let mut opened = fs::openat(&folder, name, below, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) && missing == MissingFolders::Create {
            match fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(FileError::io(
                        "could not create the parent folder of",
                        shown,
                    )(errno));
                }
            }
            opened = fs::openat(&folder, name, below, Mode::empty());
        }
        folder = opened.map_err(|errno| match errno {
            Errno::NOENT => FileError::NotFound {
                path: shown.clone(),
            },
            Errno::LOOP => FileError::Swapped {
                path: shown.clone(),
            },
            // A link that replaced a folder causes this error too.
            Errno::NOTDIR => FileError::NotAFolder {
                path: shown.clone(),
            },
            errno => FileError::io("could not open", shown)(errno),
        })?;
        refuse_if(located.reserved.has_folder(&folder), located)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;

    /// A resolved file is replaced by a link to a file outside the working directory, once before and once after the
    /// check.
    #[test]
    fn link_that_replaces_a_file_is_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        symlink(&secret, root.path().join("file")).unwrap();
        let located = LocatedPath {
            root: root.path().to_owned(),
            names: vec!["file".into()],
            shown: "file".to_owned(),
            reserved: Arc::default(),
        };
        let before = file(&located).unwrap_err();
        assert!(matches!(before, FileError::Dangling { .. }), "{before}");
        let (folder, name) = parent(&located, MissingFolders::Refuse).unwrap();
        let after = regular_in(&folder, name, &located).unwrap_err();
        assert!(matches!(after, FileError::Swapped { .. }), "{after}");
        let written = regular(&folder, name, &located).unwrap_err();
        assert!(matches!(written, FileError::Dangling { .. }), "{written}");
    }
}
