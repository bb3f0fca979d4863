//! Checks of untrusted JSON, before a parser reads it into values.

/// Prefix of the keys that `serde_json` reserves for itself.
const RESERVED: &[u8] = b"$serde_json::private::";

/// True if an object in this JSON has a key that `serde_json` reserves for itself. Refuse such a text: its parsed value
/// differs from the text, and parsing it can overflow the stack.
///
/// If an object has the key `$serde_json::private::RawValue`, `serde_json::Value` parses the string after the key as
/// JSON. Inside that string, `serde_json` counts the nesting depth from zero again, so the depth limit of the whole
/// text has no effect. Strings are scanned, not parsed: JSON in a string is harmless unless a reserved key precedes the
/// string. This function does not recurse. It does not report invalid JSON, because the parser does.
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

/// True if these bytes contain the prefix of a reserved key. Use this function only for formats without escapes,
/// because an escape can hide the prefix.
pub fn has_reserved_words(bytes: &[u8]) -> bool {
    let words = bytes.windows(RESERVED.len());
    words.into_iter().any(|words| words == RESERVED)
}

/// Greatest depth of the arrays and objects in this JSON. Brackets in strings do not count. Does not recurse.
pub fn nesting_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The next string with its quotes. Sets `rest` to the text after the string.
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
    fn depth_counts_no_brackets_in_strings() {
        assert_eq!(nesting_depth(br#"{"a[\"[":[{}],"b":[]}"#), 3);
        assert_eq!(nesting_depth(br#""[""#), 0);
        assert_eq!(nesting_depth(b"]][["), 2);
    }

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
            // A reserved key inside a message is ordinary text.
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
