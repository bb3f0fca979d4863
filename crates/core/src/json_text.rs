//! JSON of others, before it is read into values.

/// Start of the keys that `serde_json` keeps for itself.
const RESERVED: &[u8] = b"$serde_json::private::";

/// True if an object in this JSON has a key that `serde_json` keeps for itself. Refuse such a text: it is not what it
/// says, and can overflow the stack.
///
/// `serde_json::Value` reads an object with the key `$serde_json::private::RawValue` as the JSON in the string behind it,
/// and counts the depth in there from zero, whatever the limit of the text around it. Strings are looked at, not read: the
/// JSON in them can do no harm if no key leads there. There is no recursion here, and text that is no JSON is left to its
/// parser.
pub fn has_reserved_key(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(string) = next_string(&mut rest) {
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        if next == Some(&b':') && is_reserved(string) {
            return true;
        }
    }
    false
}

/// True if the start of such a key is anywhere in these bytes, which are of a format without escapes.
pub fn has_reserved_words(bytes: &[u8]) -> bool {
    let words = bytes.windows(RESERVED.len());
    words.into_iter().any(|words| words == RESERVED)
}

/// The next string with its quotes; `rest` is the text behind it.
fn next_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let open = rest.iter().position(|byte| *byte == b'"')?;
    let text = rest.get(open..)?;
    let mut end = 1;
    loop {
        match text.get(end)? {
            b'"' => break,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    let (string, behind) = text.split_at(end + 1);
    *rest = behind;
    Some(string)
}

fn is_reserved(string: &[u8]) -> bool {
    if !string.contains(&b'\\') {
        return string.get(1..).is_some_and(|key| key.starts_with(RESERVED));
    }
    let key = serde_json::from_slice::<String>(string);
    key.is_ok_and(|key| key.as_bytes().starts_with(RESERVED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reserved_keys_are_found() {
        for (json, expected) in [
            (r#"{"$serde_json::private::RawValue":"[]"}"#, true),
            (
                r#"{"a":[{"b":1,"$serde_json::private::Number" : "1"}]}"#,
                true,
            ),
            (r#"{"\u0024serde_json::private::RawValue":"[]"}"#, true),
            (r#"{"$serde_json\u003a:private::RawValue"  :"[]"}"#, true),
            (r#"{"a\\":"x","$serde_json::private::RawValue":""}"#, true),
            // A person may write about it.
            (r#"{"text":"$serde_json::private::RawValue"}"#, false),
            (
                r#"{"text":"{\"$serde_json::private::RawValue\":1}"}"#,
                false,
            ),
            (r#"["$serde_json::private::RawValue"]"#, false),
            (r#"{"serde_json::private::RawValue":1}"#, false),
            (r#"{"":{}}"#, false),
            (r#"{"a"#, false),
            (r#""\"#, false),
            ("", false),
        ] {
            assert_eq!(has_reserved_key(json.as_bytes()), expected, "{json}");
        }
        assert!(!has_reserved_key(b"\"\xff\\\xff\":"));
        let deep = "[".repeat(1_000_000) + r#"{"$serde_json::private::RawValue":"#;
        assert!(has_reserved_key(deep.as_bytes()));
    }
}
