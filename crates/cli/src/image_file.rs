//! Images in files that a user names: with `run --image`, or after `@` in a chat.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use allstop_core::image::{IMAGE_BYTES_MAX, ImageType};
use allstop_core::{Image, ImageError};
use rustix::fs::OFlags;

/// Bytes at the start of a file that contain the signature of an image.
const SIGNATURE_BYTES: u64 = 16;

/// Reads an image. May wait for a slow disk. The error is a message for the user, which names the file.
pub(crate) fn read(path: &Path) -> Result<Image, String> {
    let shown = path.display();
    let cannot_read = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("`{shown}` does not exist"),
        _ => format!("`{shown}` cannot be read: {error}"),
    };
    let (file, bytes) = open(path).map_err(cannot_read)?;
    let too_large = |bytes| format!("`{shown}`: {}", ImageError::TooLarge { bytes });
    let mut data = Vec::new();
    let first = file.take(IMAGE_BYTES_MAX as u64 + 1);
    { first }.read_to_end(&mut data).map_err(cannot_read)?;
    if data.len() > IMAGE_BYTES_MAX && ImageType::detect(&data).is_some() {
        return Err(too_large(bytes.max(data.len() as u64)));
    }
    // The signature of a larger file decides first, so that a film is no image that is too large.
    data.truncate(IMAGE_BYTES_MAX);
    Image::new(data).map_err(|error| format!("`{shown}`: {error}"))
}

/// True if the file is an image that a message can contain, of any size. May wait for a slow disk.
pub(crate) fn is_image(path: &Path) -> bool {
    let mut data = Vec::new();
    let read = open(path).and_then(|(file, _)| file.take(SIGNATURE_BYTES).read_to_end(&mut data));
    read.is_ok() && ImageType::detect(&data).is_some()
}

/// Opens a regular file, and returns its size. A FIFO does not block.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let error = |name: &str| {
            let error = read(&path(name)).unwrap_err();
            error.replace(&format!("{}/", folder.path().display()), "")
        };
        assert_eq!(error("none.png"), "`none.png` does not exist");
        std::fs::write(path("text.png"), "hello").unwrap();
        assert_eq!(
            error("text.png"),
            "`text.png`: not an image: the content is neither PNG, JPEG, GIF nor WebP"
        );
        std::fs::create_dir(path("folder.png")).unwrap();
        assert_eq!(
            error("folder.png"),
            "`folder.png` cannot be read: it is no regular file"
        );
        let mut large = b"\x89PNG\r\n\x1a\n".to_vec();
        large.resize(IMAGE_BYTES_MAX + 1, 0);
        std::fs::write(path("large.png"), &large).unwrap();
        assert!(error("large.png").contains("the image is too large (4.0 MB"));
        assert!(is_image(&path("large.png")) && !is_image(&path("text.png")));
        large.truncate(20);
        std::fs::write(path("small"), large).unwrap();
        assert_eq!(read(&path("small")).unwrap().bytes().len(), 20);
    }
}
