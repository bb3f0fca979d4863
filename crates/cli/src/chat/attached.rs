//! Images that a message of a chat names after `@`, such as `@shot.png` or `@"my shot.png"`, and pasted paths of images.

use std::path::{Path, PathBuf};

use allstop_core::{Image, Images};
use url::Url;

use crate::image_file;
use crate::image_names::{after_at, is_image_name, names};

/// Maximum bytes of a pasted path: the usual limit of systems.
const PATH_BYTES_MAX: usize = 4_096;

/// The images of a message.
#[derive(Debug, Default)]
pub(super) struct AttachedImages {
    pub(super) images: Images,
    /// A row for people for each image, such as `[image shot.png, 12 kB]`.
    pub(super) rows: Vec<String>,
}

/// True if the message names files.
pub(super) fn names_files(text: &str) -> bool {
    !names(text).is_empty()
}

/// Reads the images that a message names. Names of other files are only text. May wait for a slow disk. The error is a
/// message for the user.
pub(super) fn read(text: &str, folder: &Path) -> Result<AttachedImages, String> {
    let mut images: Vec<Image> = Vec::new();
    let mut rows = Vec::new();
    for name in names(text) {
        let path = folder.join(&name);
        if !is_image_name(&name) && !image_file::is_image(&path) {
            continue;
        }
        let image = image_file::read(&path)?;
        rows.push(format!("[image {name}, {}]", image.info().size()));
        images.push(image);
    }
    let images = Images::new(images).map_err(|error| error.to_string())?;
    Ok(AttachedImages { images, rows })
}

/// Paths that a pasted text may mean. Terminals paste the path of a dropped file in quotes, with backslashes before
/// blanks, as a URL, or unchanged. Empty if the text is certainly no path of an image.
pub(super) fn pasted_paths(text: &str) -> Vec<PathBuf> {
    let text = text.trim();
    if text.is_empty() || text.len() > PATH_BYTES_MAX || text.contains(['\n', '\r']) {
        return Vec::new();
    }
    if text.starts_with("file://") {
        let path = Url::parse(text)
            .ok()
            .and_then(|url| url.to_file_path().ok());
        return path.into_iter().collect();
    }
    let word = shlex::split(text).filter(|words| words.len() == 1);
    let unquoted = word.into_iter().flatten().map(PathBuf::from);
    let mut paths: Vec<PathBuf> = unquoted.chain([PathBuf::from(text)]).collect();
    paths.dedup();
    paths.retain(|path| path.extension().is_some());
    paths
}

/// The name of a pasted image, so that a message attaches it; `None` if the text is no path of an image. May wait for a
/// slow disk.
pub(super) fn pasted_image(text: &str, folder: &Path) -> Option<String> {
    let paths = pasted_paths(text).into_iter();
    let found = paths
        .map(|path| folder.join(path))
        .find(|path| image_file::is_image(path))?;
    let name = found.strip_prefix(folder).unwrap_or(&found).to_str()?;
    Some(format!("{} ", after_at(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_path_of_an_image_becomes_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let png = b"\x89PNG\r\n\x1a\n";
        std::fs::write(folder.path().join("shot.png"), png).unwrap();
        std::fs::write(folder.path().join("my shot.png"), png).unwrap();
        std::fs::write(folder.path().join("text.png"), "text").unwrap();
        let in_folder = |name: &str| format!("{}/{name}", folder.path().display());
        let blank = Some("@\"my shot.png\" ".to_owned());
        for (pasted, expected) in [
            (in_folder("shot.png"), Some("@shot.png ".to_owned())),
            ("shot.png\n".to_owned(), Some("@shot.png ".to_owned())),
            (in_folder("my\\ shot.png "), blank.clone()),
            (in_folder("my shot.png"), blank.clone()),
            (format!("'{}'", in_folder("my shot.png")), blank.clone()),
            (format!("file://{}", in_folder("my%20shot.png")), blank),
            (in_folder("text.png"), None),
            (in_folder("none.png"), None),
            ("look at shot.png".to_owned(), None),
        ] {
            assert_eq!(pasted_image(&pasted, folder.path()), expected, "{pasted}");
        }
        let name = "@\"my shot.png\"";
        let attached = read(&format!("{name} @src/main.rs @user"), folder.path()).unwrap();
        assert_eq!(attached.rows, ["[image my shot.png, 1 kB]"]);
        assert!(
            read("@text.png", folder.path())
                .unwrap_err()
                .contains("not an image")
        );
        assert!(
            read("@none.png", folder.path())
                .unwrap_err()
                .contains("does not exist")
        );
    }
}
