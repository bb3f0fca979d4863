//! Loads the configuration file.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::DeTable;

use super::error::line_and_column;
use super::{Config, ConfigError};
use crate::system::{builtin_script, script_of};

/// Maximum size of the configuration and of the system prompt, in bytes: a thousand times the usual size. With this
/// limit, a wrong path to a disk image causes an error and not a long wait.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads a configuration file, and the system prompt file that it names.
    ///
    /// # Errors
    /// Returns the first error in the file, as one line, with line and column.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)?;
        let mut config = Self::parse(path, &text)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        config.resolve(&absolute);
        config.read_system_prompt()?;
        Ok(config)
    }

    /// Parses the text of a configuration file. `path` is only used in messages; relative paths in the text do not
    /// change.
    ///
    /// # Errors
    /// Returns the first error in the text, as one line, with line and column.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::at(path, text, error.span(), error.message()))?;
        if config.system_prompt.is_some() && config.system_prompt_file.is_some() {
            let message =
                "both `system_prompt` and `system_prompt_file` are given, expected one of them";
            let span = span_of_key(text, "system_prompt_file");
            return Err(ConfigError::at(path, text, span, message));
        }
        let options = config.model.request.provider_options.values();
        if options.clone().any(is_not_json) {
            let message = "`provider_options` has a date, `inf` or `nan`, which JSON does not have; use a text or a number";
            let span = span_of_key(text, "model");
            return Err(ConfigError::at(path, text, span, message));
        }
        Ok(config)
    }

    /// Resolves relative paths against this folder.
    pub(super) fn resolve(&mut self, folder: &Path) {
        let resolve = |path: &mut PathBuf| *path = folder.join(&*path);
        self.system_prompt_file.iter_mut().for_each(resolve);
        self.store.path.iter_mut().for_each(resolve);
        self.workspace.read.iter_mut().for_each(resolve);
        self.workspace.write.iter_mut().for_each(resolve);
        if self.model.base_url.is_none()
            && let Some(script) = self
                .model
                .name
                .as_deref()
                .and_then(script_of)
                .filter(|name| builtin_script(name).is_none())
        {
            self.model.name = Some(format!("script:{}", folder.join(script).display()));
        }
    }

    /// Reads the file named by `system_prompt_file`, if any, into `system_prompt`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is not UTF-8.
    pub fn read_system_prompt(&mut self) -> Result<(), ConfigError> {
        if let Some(path) = self.system_prompt_file.take() {
            self.system_prompt = Some(read_text(&path)?);
        }
        Ok(())
    }
}

/// Position of a top-level key.
fn span_of_key(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?.into_inner();
    let mut keys = table.keys();
    keys.find(|name| *name.get_ref() == key).map(Spanned::span)
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let failed = |error: std::io::Error| {
        ConfigError::of_file(
            path,
            format!("cannot be read: {error}"),
            "name an existing, readable file",
        )
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("is longer than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::of_file(path, message, "check the path"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default());
        ConfigError {
            at: Some(line_and_column(&before, before.len())),
            ..ConfigError::of_file(
                path,
                "invalid UTF-8, expected text",
                "save the file as UTF-8",
            )
        }
    })
}

/// True if a value of TOML has no counterpart in JSON. The conversion turns a date into a map with a private key, and `inf` and
/// `nan` into `null`, which TOML does not have.
fn is_not_json(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(is_not_json),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.starts_with("$__toml_private") || is_not_json(value)),
        _ => false,
    }
}
