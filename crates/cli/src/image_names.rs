//! Names of files after `@` in a text, such as `@shot.png` or `@"my shot.png"`.

use std::path::Path;

use crate::pasted_mark;

/// Extensions of names that certainly mean an image. Another name after `@` means one only if the file is one.
const EXTENSIONS: [&str; 5] = ["png", "jpg", "jpeg", "gif", "webp"];

/// Characters that end a sentence, and not the name of a file.
const PUNCTUATION: [char; 7] = ['.', ',', ';', ':', '!', '?', ')'];

/// The names after `@`, each once. An `@` follows a blank or begins a line. A name in quotes may contain blanks. An `@`
/// in a pasted text names no file.
pub(crate) fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut before = None;
    for (at, c) in text.char_indices() {
        let begins = before.is_none_or(char::is_whitespace);
        before = Some(c);
        let rest = &text[at + c.len_utf8()..];
        if c != '@' || !begins || pasted_mark::is_marked(rest) {
            continue;
        }
        let name = match rest.strip_prefix('"') {
            Some(quoted) => until_quote(quoted),
            None => rest
                .split(char::is_whitespace)
                .next()
                .map(|word| word.trim_end_matches(PUNCTUATION).to_owned()),
        };
        let name = name.map(|name| pasted_mark::unmark(&name));
        names.extend(name.filter(|name| !name.is_empty() && !names.contains(name)));
    }
    names
}

/// The text up to the closing quote. A backslash keeps the next character.
fn until_quote(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some(name),
            '\\' => name.push(chars.next()?),
            c => name.push(c),
        }
    }
}

/// The name after `@`, in quotes if it needs them.
pub(crate) fn after_at(name: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && c != '"' && c != '\\';
    if name.chars().all(is_plain) && !name.ends_with(PUNCTUATION) {
        return format!("@{name}");
    }
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("@\"{escaped}\"")
}

/// True if a name after this text needs a blank before its `@`.
pub(crate) fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| !c.is_whitespace())
}

/// True if the extension of the name is one of an image.
pub(crate) fn is_image_name(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.to_lowercase().as_str()))
}

/// Note about a name in a text that no person typed into a chat, so that it attaches no image.
pub(crate) fn sent_as_text(name: &str) -> String {
    let name = after_at(name);
    format!("{name} is sent as text; `allstop run --image FILE` sends an image")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_an_at_sign() {
        for (text, expected) in [
            ("look at @shot.png, please", &["shot.png"][..]),
            (
                "@\"my shot.png\" @a/b.gif @a/b.gif",
                &["my shot.png", "a/b.gif"],
            ),
            (r#"@"a \"b\".png""#, &[r#"a "b".png"#]),
            ("me@example.png and @ alone", &[]),
            ("(@x.jpg) and `@x.jpg`", &[]),
            ("(see\n@x.jpg)", &["x.jpg"]),
            ("@\"no end", &[]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
        for name in ["shot.png", "my shot.png", r#"a "b\".png"#, "end."] {
            assert_eq!(names(&after_at(name)), [name]);
        }
    }

    #[test]
    fn pasted_text_names_no_file() {
        let pasted = pasted_mark::mark("see @../out.png\n@\"../out.png\"");
        assert_eq!(names(&format!("{pasted} @shot.png")), ["shot.png"]);
        // The `@` was typed, and the rest of the name pasted.
        let name = format!("@{}", pasted_mark::mark("shot@2x.png"));
        assert_eq!(names(&name), ["shot@2x.png"]);
    }
}
