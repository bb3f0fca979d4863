//! Converts the names of log streams to NATS subjects, and back.
//!
//! Slashes divide a name into segments. Each segment is one token of the subject, so that a wildcard can list all
//! streams of one kind. If a character is not allowed in a token, it is written as `=` and two hexadecimal digits. An
//! empty segment is written as a single `=`.

use allstop_log::StreamName;

/// Converts a name to tokens.
pub(crate) fn tokens_of(name: &StreamName) -> String {
    let mut tokens = String::with_capacity(name.as_str().len() + 4);
    for (index, segment) in name.as_str().split('/').enumerate() {
        if index > 0 {
            tokens.push('.');
        }
        if segment.is_empty() {
            tokens.push('=');
        }
        for byte in segment.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
                tokens.push(char::from(byte));
            } else {
                let digit = |value: u8| char::from_digit(u32::from(value), 16);
                tokens.push('=');
                tokens.extend([digit(byte >> 4), digit(byte & 15)].into_iter().flatten());
            }
        }
    }
    tokens
}

/// Converts tokens to the name that they encode. `None` if no name has these tokens.
pub(crate) fn name_of(tokens: &str) -> Option<StreamName> {
    let segments = tokens.split('.').map(segment_of);
    let segments = segments.collect::<Option<Vec<String>>>()?;
    let name = StreamName::new(segments.join("/"));
    // Accepts only tokens that `tokens_of` would write. Without this check, two subjects could have one name.
    (tokens_of(&name) == tokens).then_some(name)
}

fn segment_of(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).ok()
}

fn digit(character: u8) -> Option<u8> {
    let value = char::from(character).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Returns a filter for subjects. The filter matches all names with this prefix, and possibly other names.
pub(crate) fn filter_of(root: &str, prefix: &str) -> String {
    match prefix.rsplit_once('/') {
        Some((folder, _)) => format!("{root}.{}.>", tokens_of(&StreamName::new(folder))),
        None => format!("{root}.>"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_names_stay_readable() {
        let tokens = tokens_of(&StreamName::new("task/01JD-x_y"));
        assert_eq!(tokens, "task.01JD-x_y");
        assert_eq!(
            tokens_of(&StreamName::new("a.b/ c*>/é")),
            "a=2eb.=20c=2a=3e.=c3=a9"
        );
        assert_eq!(filter_of("r.log", "session/ab"), "r.log.session.>");
        assert_eq!(filter_of("r.log", "se"), "r.log.>");
    }

    #[test]
    fn tokens_of_no_name_have_no_name() {
        for tokens in [
            "", "a..b", "a=", "a=2", "a=zz", "a=2E", "=61", "=ff", "a.=.=x",
        ] {
            assert_eq!(name_of(tokens), None, "{tokens}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in ".{0,40}") {
            let name = StreamName::new(name);
            let tokens = tokens_of(&name);
            let is_valid = tokens.split('.').all(|token| !token.is_empty())
                && !tokens.contains(|c: char| c.is_whitespace() || c == '*' || c == '>');
            prop_assert!(is_valid, "{tokens:?}");
            prop_assert_eq!(name_of(&tokens), Some(name));
        }

        #[test]
        fn filter_covers_each_name_with_the_prefix(name in "[a-b/.]{0,12}", len in 0_usize..12) {
            let prefix = name.get(..len).unwrap_or(&name);
            let filter = filter_of("r", prefix);
            let subject = format!("r.{}", tokens_of(&StreamName::new(name.as_str())));
            let covered = filter.strip_suffix('>').unwrap();
            prop_assert!(subject.starts_with(covered), "{subject} {filter}");
        }
    }
}
