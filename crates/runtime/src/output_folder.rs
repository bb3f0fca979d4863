//! Folder with the long output of a session.

use std::path::{Path, PathBuf};

use allstop_core::SessionId;

/// Path of the folder with the long output of a session. Ids come from clients and imported files, so an id that is no
/// plain file name is encoded: the path is always directly in `outputs`.
pub(crate) fn output_folder(outputs: &Path, id: &SessionId) -> PathBuf {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let id = id.as_str();
    let is_name = !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '%', '\0']);
    if is_name {
        return outputs.join(id);
    }
    let encoded = |byte: u8| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    };
    let name: String = id.bytes().map(encoded).collect();
    outputs.join(format!("%{name}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Regression: the removal of the session `../../x` removed a folder of the user.
    #[test]
    fn each_id_has_a_folder_of_its_own_directly_in_the_folder_of_all() {
        let outputs = Path::new("/store.db.output");
        let ids = [
            "01J", "a.b", "é", ".", "..", "", "/", "/etc", "../../x", "a/b", "a%2fb", "%a%2fb",
            "\0",
        ];
        let folders: HashSet<_> = ids
            .iter()
            .map(|id| output_folder(outputs, &SessionId::from(*id)))
            .collect();
        assert_eq!(folders.len(), ids.len(), "{folders:?}");
        for folder in &folders {
            assert_eq!(folder.parent(), Some(outputs), "{folder:?}");
            assert!(!folder.ends_with("..") && !folder.to_string_lossy().contains('\0'));
        }
        assert!(folders.contains(Path::new("/store.db.output/01J")));
    }
}
