//! Answers to the questions of `init`, and the configuration file with these answers.

use allstop_tools::permission::PermissionMode;
use toml_edit::{DocumentMut, value};

/// Chosen model. `base_url` is set only if the user chose a server by its URL.
#[derive(Debug)]
pub(super) struct ModelSource {
    pub(super) name: String,
    pub(super) base_url: Option<String>,
}

/// Permission modes to choose from.
pub(super) const MODES: [PermissionMode; 2] = [PermissionMode::Ask, PermissionMode::AcceptEdits];

/// Actions that the model may take without a question in a permission mode.
pub(super) fn describe_mode(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Plan => "read files here, and nothing else",
        PermissionMode::Ask => {
            "read files here; it asks before it changes a file or runs a command"
        }
        PermissionMode::AcceptEdits => {
            "read and change files here; it asks before it runs a command"
        }
    }
}

/// Text of the configuration file.
pub(super) fn text(source: &ModelSource, mode: PermissionMode) -> String {
    let mut document = DocumentMut::new();
    let model = document.entry("model").or_insert_with(toml_edit::table);
    model["name"] = value(&source.name);
    if let Some(url) = &source.base_url {
        model["base_url"] = value(url);
    }
    if mode != PermissionMode::default() {
        let permissions = document
            .entry("permissions")
            .or_insert_with(toml_edit::table);
        permissions["mode"] = value(mode.as_str());
    }
    format!("# Every key: allstop schema config. Checked by: allstop doctor\n{document}")
}

#[cfg(test)]
mod tests {
    use allstop_runtime::Config;

    use super::*;

    #[test]
    fn file_is_a_valid_configuration() {
        let source = ModelSource {
            name: "a \"name\"".to_owned(),
            base_url: Some("http://127.0.0.1:8080/v1".to_owned()),
        };
        let text = text(&source, PermissionMode::AcceptEdits);
        let config = Config::parse("test.toml".as_ref(), &text).unwrap();
        assert_eq!(config.model.name.as_deref(), Some("a \"name\""));
        assert_eq!(config.model.base_url, source.base_url);
        assert_eq!(config.permissions.mode, PermissionMode::AcceptEdits);
    }
}
