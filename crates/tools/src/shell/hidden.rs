//! Hint for a failed command that seems to need an environment variable that is hidden from commands.

use std::ffi::OsString;

/// Maximum number of variables in one hint.
const NAMED_MAX: usize = 3;

/// Returns a hint that names the hidden variables whose names occur in the command or its output, if any.
pub(super) fn hint(hidden: &[OsString], command: &str, output: &str) -> Option<String> {
    let hidden = hidden.iter().filter_map(|name| name.to_str());
    let named = hidden.filter(|name| has_word(command, name) || has_word(output, name));
    let named: Vec<&str> = named.take(NAMED_MAX).collect();
    if named.is_empty() {
        return None;
    }
    let (are, them) = match named.len() {
        1 => ("is", "it"),
        _ => ("are", "them"),
    };
    let listed = named.join(", ");
    Some(format!(
        "{listed} {are} hidden from commands; to allow {them}, add {them} to `env` in the section `[shell]` of the \
         configuration"
    ))
}

/// True if the text contains the name as a word.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            let behind = text.get(at + name.len()..);
            let behind = behind.and_then(|behind| behind.chars().next());
            !before.is_some_and(is_part) && !behind.is_some_and(is_part)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_hidden_variables_that_are_whole_words() {
        let hidden = ["KEY", "GITHUB_TOKEN"].map(OsString::from);
        let hint = |command: &str, output: &str| hint(&hidden, command, output);
        let one = "GITHUB_TOKEN is hidden from commands; to allow it, add it to `env` in the section `[shell]` of the \
                   configuration";
        assert_eq!(hint("echo ${GITHUB_TOKEN:?}", "").as_deref(), Some(one));
        assert_eq!(hint("gh", "set GITHUB_TOKEN.").as_deref(), Some(one));
        assert_eq!(
            hint("echo $MY_GITHUB_TOKEN $GITHUB_TOKENS MONKEY", ""),
            None
        );
        let two = hint("$KEY", "GITHUB_TOKEN").unwrap();
        assert!(two.starts_with("KEY, GITHUB_TOKEN are hidden"), "{two}");
    }
}
