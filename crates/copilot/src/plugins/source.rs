//! Sources of plugins and marketplaces, as users write them.

use std::path::{Path, PathBuf};

use super::folder::check_name;

/// Source of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PluginSource {
    Marketplace {
        plugin: String,
        marketplace: String,
    },
    /// An absolute path.
    Folder(PathBuf),
}

impl PluginSource {
    /// Parses a source. `folder` is the start of relative paths. The error is the reason, for people.
    pub(crate) fn parse(source: &str, folder: &Path) -> Result<Self, String> {
        if let Some((plugin, marketplace)) = source.rsplit_once('@')
            && check_name("plugin", plugin).is_ok()
            && check_name("marketplace", marketplace).is_ok()
        {
            let (plugin, marketplace) = (plugin.to_owned(), marketplace.to_owned());
            return Ok(Self::Marketplace {
                plugin,
                marketplace,
            });
        }
        local_folder(source, folder).map(Self::Folder)
    }
}

/// Returns the folder that a source names, without links. `folder` is the start of relative paths.
pub(crate) fn local_folder(source: &str, folder: &Path) -> Result<PathBuf, String> {
    let is_path = ['/', '.'].iter().any(|first| source.starts_with(*first));
    let has_host = source.contains("://") || source.starts_with("git@");
    let path = folder.join(source);
    if source.trim().is_empty() || has_host || !(is_path || path.is_dir()) {
        return Err(remote(&format!("the source {source:?}")));
    }
    let real = path.canonicalize();
    real.map_err(|error| {
        let path = path.display();
        format!("the folder {path} cannot be read: {error}; name a folder that exists")
    })
}

/// The refusal of a source that is not on this machine.
pub(super) fn remote(what: &str) -> String {
    format!(
        "{what} is not a local folder, and only local folders are supported: clone the repository, and name its folder"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_sources_are_accepted() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("plugin")).unwrap();
        let parse = |source: &str| PluginSource::parse(source, &root);
        let folder = PluginSource::Folder(root.join("plugin"));
        let absolute = root.join("plugin").display().to_string();
        for source in ["plugin", "./plugin", &absolute] {
            assert_eq!(parse(source), Ok(folder.clone()), "{source}");
        }
        for source in [
            "",
            "owner/repo",
            "https://example.com/a",
            "git@example.com:a",
            "git@b:c/d",
        ] {
            assert!(
                parse(source).unwrap_err().contains("only local folders"),
                "{source}"
            );
        }
        assert!(parse("./missing").unwrap_err().contains("cannot be read"));
        let marketplace = PluginSource::Marketplace {
            plugin: "a".to_owned(),
            marketplace: "b".to_owned(),
        };
        assert_eq!(parse("a@b"), Ok(marketplace));
    }
}
