//! Answers to the questions of `init`, and the file that they make.

use toml_edit::{Array, DocumentMut, value};

/// The model, and its server if it is one of the person's own.
#[derive(Debug)]
pub(super) struct ModelSource {
    pub(super) name: String,
    pub(super) base_url: Option<String>,
}

/// Calls that run without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permissions {
    Reading,
    Edits,
}

impl Permissions {
    pub(super) const ALL: [Self; 2] = [Self::Reading, Self::Edits];

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Reading => "read files here; it asks before it changes a file or runs a command",
            Self::Edits => "read and change files here; it asks before it runs a command",
        }
    }
}

/// The file.
pub(super) fn text(source: &ModelSource, permissions: Permissions) -> String {
    let mut document = DocumentMut::new();
    let model = document.entry("model").or_insert_with(toml_edit::table);
    model["name"] = value(&source.name);
    if let Some(url) = &source.base_url {
        model["base_url"] = value(url);
    }
    if permissions == Permissions::Edits {
        let allow: Array = ["write", "edit"].into_iter().collect();
        let permissions = document
            .entry("permissions")
            .or_insert_with(toml_edit::table);
        permissions["allow"] = value(allow);
    }
    format!("# Every key: docs/configuration.md. Checked by: allstop doctor\n{document}")
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
        let text = text(&source, Permissions::Edits);
        let config = Config::parse("test.toml".as_ref(), &text).unwrap();
        assert_eq!(config.model.name.as_deref(), Some("a \"name\""));
        assert_eq!(config.model.base_url, source.base_url);
        let allow: Vec<_> = config
            .permissions
            .allow
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(allow, ["write", "edit"]);
    }
}
