//! Images that a message of a chat names after `@`, such as `@shot.png` or `@"my shot.png"`, and pasted paths of images.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allstop_core::image::IMAGES_MAX;
use allstop_core::{Image, Images};
use url::Url;

use crate::host::ProcessHost;
use crate::image_file;
use crate::image_names::{after_at, is_image_name, names};

/// Maximum bytes of pasted paths: the usual limit of systems, for each image of a message.
const PATHS_BYTES_MAX: usize = 4_096 * IMAGES_MAX;

/// Maximum number of remembered names. A person sends a message soon after the names in it were found.
const FOUND_NAMES_MAX: usize = 64;

/// The images of a message.
#[derive(Debug, Default)]
pub(super) struct AttachedImages {
    pub(super) images: Images,
    /// A row for people for each image, such as `[image shot.png, 12 kB]`, and for each file that does not exist.
    pub(super) rows: Vec<String>,
}

/// True if the message names files.
pub(super) fn names_files(text: &str) -> bool {
    !names(text).is_empty()
}

/// Reader of the images that messages name.
#[derive(Debug, Clone)]
pub(super) struct ImageFinder {
    folder: PathBuf,
    home: Option<PathBuf>,
    /// Names of files that existed when they were completed or pasted.
    found: VecDeque<String>,
}

impl ImageFinder {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self::new(folder.to_owned(), ProcessHost::user_folders().home)
    }

    fn new(folder: PathBuf, home: Option<PathBuf>) -> Self {
        Self {
            folder,
            home,
            found: VecDeque::new(),
        }
    }

    /// Remembers that the named file exists.
    pub(super) fn remember(&mut self, name: String) {
        if !self.found.contains(&name) {
            self.found.push_back(name);
        }
        if self.found.len() > FOUND_NAMES_MAX {
            self.found.pop_front();
        }
    }

    /// Path of a named file. `~/` is the home folder.
    fn path(&self, name: &Path) -> PathBuf {
        match (name.strip_prefix("~"), &self.home) {
            (Ok(below), Some(home)) => home.join(below),
            _ => self.folder.join(name),
        }
    }

    /// Reads the images that a message names, each file once. Names of other files are only text, and `resources` name
    /// no files. May wait for a slow disk. The error is a message for the user.
    pub(super) fn read(&self, text: &str, resources: &[String]) -> Result<AttachedImages, String> {
        let mut images: Vec<Image> = Vec::new();
        let mut rows = Vec::new();
        let mut paths = BTreeSet::new();
        for name in names(text) {
            if resources.contains(&name) {
                continue;
            }
            let path = self.path(Path::new(&name));
            let is_typed = !self.found.contains(&name);
            if is_typed && is_image_name(&name) && is_missing(&path) {
                let name = after_at(&name);
                rows.push(format!("no image {name}: the file does not exist"));
                continue;
            }
            if !is_image_name(&name) && !image_file::is_image(&path) {
                continue;
            }
            let image = image_file::read(&path)?;
            if paths.insert(path.canonicalize().unwrap_or(path)) {
                rows.push(format!("[image {name}, {}]", image.info().size()));
                images.push(image);
            }
        }
        let images = Images::new(images).map_err(|error| error.to_string())?;
        Ok(AttachedImages { images, rows })
    }

    /// The names of pasted images, so that a message attaches them; `None` if the text is not only paths of images. May
    /// wait for a slow disk.
    pub(super) fn pasted_images(&self, text: &str) -> Option<String> {
        let readings = pasted_paths(text).into_iter();
        let found = readings
            .map(|paths| paths.iter().map(|path| self.path(path)).collect::<Vec<_>>())
            .find(|paths| paths.iter().all(|path| image_file::is_image(path)))?;
        let names = found.iter().map(|path| {
            let name = path.strip_prefix(&self.folder).unwrap_or(path).to_str()?;
            Some(format!("{} ", after_at(name)))
        });
        names.collect()
    }
}

/// True if no file has this path.
fn is_missing(path: &Path) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::NotADirectory,
        ErrorKind::InvalidFilename,
    ];
    path.metadata()
        .is_err_and(|error| kinds.contains(&error.kind()))
}

/// Lists of paths that a pasted text may mean. Terminals paste the paths of dropped files in quotes, with backslashes
/// before blanks, as URLs, or unchanged. Empty if the text is certainly no list of images.
pub(super) fn pasted_paths(text: &str) -> Vec<Vec<PathBuf>> {
    let text = text.trim();
    if text.is_empty() || text.len() > PATHS_BYTES_MAX || text.contains(['\n', '\r']) {
        return Vec::new();
    }
    let words = shlex::split(text).filter(|words| words.len() <= IMAGES_MAX);
    let readings = [vec![text.to_owned()]].into_iter().chain(words);
    let paths = readings.filter_map(|words| words.iter().map(|word| pasted_path(word)).collect());
    let is_possible = |path: &PathBuf| path.extension().is_some();
    paths
        .filter(|paths: &Vec<PathBuf>| paths.iter().all(is_possible))
        .collect()
}

/// The path that a word means; `None` for the URL of no local file.
fn pasted_path(word: &str) -> Option<PathBuf> {
    if !word.starts_with("file://") {
        return Some(PathBuf::from(word));
    }
    Url::parse(word).ok()?.to_file_path().ok()
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
        let finder = ImageFinder::new(folder.path().to_owned(), None);
        let in_folder = |name: &str| format!("{}/{name}", folder.path().display());
        let blank = Some("@\"my shot.png\" ".to_owned());
        for (pasted, expected) in [
            (in_folder("shot.png"), Some("@shot.png ".to_owned())),
            ("shot.png\n".to_owned(), Some("@shot.png ".to_owned())),
            (in_folder("my\\ shot.png "), blank.clone()),
            (in_folder("my shot.png"), blank.clone()),
            (format!("'{}'", in_folder("my shot.png")), blank.clone()),
            (format!("file://{}", in_folder("my%20shot.png")), blank),
            (
                format!("{} {}", in_folder("shot.png"), in_folder("my\\ shot.png")),
                Some("@shot.png @\"my shot.png\" ".to_owned()),
            ),
            (
                format!("'{0}' 'file://{0}'", in_folder("shot.png")),
                Some("@shot.png @shot.png ".to_owned()),
            ),
            (format!("{} none.png", in_folder("shot.png")), None),
            (in_folder("text.png"), None),
            (in_folder("none.png"), None),
            ("look at shot.png".to_owned(), None),
        ] {
            assert_eq!(finder.pasted_images(&pasted), expected, "{pasted}");
        }
    }

    #[test]
    fn names_of_missing_files_are_text_unless_they_were_found() {
        let folder = tempfile::tempdir().unwrap();
        let png = b"\x89PNG\r\n\x1a\n";
        std::fs::write(folder.path().join("my shot.png"), png).unwrap();
        std::fs::write(folder.path().join("text.png"), "text").unwrap();
        let mut finder = ImageFinder::new(folder.path().to_owned(), None);
        let name = "@\"my shot.png\"";
        let attached = finder
            .read(&format!("{name} @src/main.rs @user"), &[])
            .unwrap();
        assert_eq!(attached.rows, ["[image my shot.png, 1 kB]"]);
        assert!(
            finder
                .read("@text.png", &[])
                .unwrap_err()
                .contains("not an image")
        );
        let attached = finder
            .read("see @none.png or @text.png/x.png", &[])
            .unwrap();
        let rows = [
            "no image @none.png: the file does not exist",
            "no image @text.png/x.png: the file does not exist",
        ];
        assert_eq!(attached.rows, rows);
        let resource = "docs:file:///none.png".to_owned();
        let attached = finder.read(&format!("@{resource}"), std::slice::from_ref(&resource));
        assert!(attached.unwrap().rows.is_empty());
        finder.remember("my shot.png".to_owned());
        std::fs::remove_file(folder.path().join("my shot.png")).unwrap();
        assert!(
            finder
                .read(name, &[])
                .unwrap_err()
                .contains("does not exist")
        );
    }

    #[test]
    fn file_is_attached_once_and_tilde_is_the_home_folder() {
        let home = tempfile::tempdir().unwrap();
        let png = b"\x89PNG\r\n\x1a\n";
        std::fs::write(home.path().join("x.png"), png).unwrap();
        let work = home.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let finder = ImageFinder::new(work, Some(home.path().to_owned()));
        let attached = finder
            .read("@~/x.png @../x.png @../work/../x.png", &[])
            .unwrap();
        assert_eq!(attached.rows, ["[image ~/x.png, 1 kB]"]);
        assert_eq!(attached.images.len(), 1);
        let name = format!("@{}/x.png ", home.path().display());
        assert_eq!(finder.pasted_images("~/x.png"), Some(name));
    }
}
