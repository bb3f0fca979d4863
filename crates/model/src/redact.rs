//! Removes secrets from texts, in all forms in which servers repeat them.

use std::fmt::{self, Write as _};

/// Replacement of a secret.
const MARK: &str = "[key]";

/// Shortest base64 text that counts as part of a secret. Shorter texts also occur in ordinary words.
const BASE64_LEN_MIN: usize = 5;

/// Replaces secrets in texts. It finds four forms of a secret: the original text, percent-encoded, escaped for JSON,
/// and base64. In base64, the secret can also be a part of a longer text such as `user:secret`.
#[derive(Clone, Default)]
pub struct SecretRedactor {
    /// Sorted by length, the longest first. Otherwise a shorter secret could replace a part of a longer one.
    written: Vec<String>,
    /// Base64 encodes groups of three bytes. For each of the three positions at which a secret can begin in a group,
    /// this list contains the base64 characters that depend only on the secret.
    in_base64: Vec<String>,
}

impl SecretRedactor {
    /// Creates a redactor for these secrets. Ignores empty secrets.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut all = Self::default();
        for secret in secrets {
            let secret = secret.as_ref();
            if secret.is_empty() {
                continue;
            }
            let json = serde_json::Value::from(secret).to_string();
            let json = json.trim_matches('"');
            all.written.extend([
                secret.to_owned(),
                json.to_owned(),
                json.replace('/', "\\/"),
                percent_encoded(secret, "-._~"),
                percent_encoded(secret, "-._~!'()*"),
                percent_encoded(secret, "-._*").replace("%20", "+"),
            ]);
            for alphabet in [STANDARD, URL_SAFE] {
                let cores = (0..3).map(|offset| base64_core(secret.as_bytes(), offset, alphabet));
                all.in_base64
                    .extend(cores.filter(|core| core.len() >= BASE64_LEN_MIN));
            }
        }
        for needles in [&mut all.written, &mut all.in_base64] {
            needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            needles.dedup();
        }
        all
    }

    /// Returns the text with all secrets replaced.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for core in &self.in_base64 {
            text = without_base64(&text, core);
        }
        for secret in &self.written {
            text = replace_ignoring_hex_case(&text, secret);
        }
        text
    }
}

/// The output contains no secret.
impl fmt::Debug for SecretRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRedactor").finish_non_exhaustive()
    }
}

fn percent_encoded(text: &str, unreserved: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || unreserved.as_bytes().contains(&byte) {
            encoded.push(byte.into());
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes all text");
        }
    }
    encoded
}

/// Replaces each occurrence of `needle`. Hexadecimal digits after a `%` or in a `\u` may be upper or lower case.
fn replace_ignoring_hex_case(text: &str, needle: &str) -> String {
    if !needle.contains(['%', '\\']) {
        return text.replace(needle, MARK);
    }
    let is_here = |at: usize| {
        let found = text.as_bytes().get(at..at + needle.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(needle.as_bytes()))
    };
    let (mut done, mut rest) = (String::new(), 0);
    for (at, _) in text.char_indices() {
        if at >= rest && is_here(at) && text.is_char_boundary(at + needle.len()) {
            done.push_str(text.get(rest..at).unwrap_or_default());
            done.push_str(MARK);
            rest = at + needle.len();
        }
    }
    done + text.get(rest..).unwrap_or_default()
}

/// Replaces each sequence of base64 characters that contains `core`. The whole sequence is replaced, because its ends
/// mix the secret with the adjacent text.
fn without_base64(text: &str, core: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(core) {
        let (before, behind) = rest.split_at(at);
        done.push_str(before.trim_end_matches(is_base64));
        done.push_str(MARK);
        rest = behind.trim_start_matches(is_base64);
    }
    done + rest
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The base64 characters that depend only on the secret, if `offset` bytes precede the secret in its base64 group.
fn base64_core(secret: &[u8], offset: usize, alphabet: &[u8; 64]) -> String {
    let bits: Vec<u8> = std::iter::repeat_n(&0, offset)
        .chain(secret)
        .flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1))
        .collect();
    let first = (offset * 8).div_ceil(6);
    let groups = bits.chunks_exact(6).skip(first);
    groups
        .filter_map(|six| {
            let value = six
                .iter()
                .fold(0, |value, bit| value << 1 | usize::from(*bit));
            alphabet.get(value).map(|letter| char::from(*letter))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-p/a+ss w\"örd~1";

    fn base64(text: &str, alphabet: &[u8; 64], padded: bool) -> String {
        let mut out = String::new();
        for group in text.as_bytes().chunks(3) {
            let mut three = [0_u8; 3];
            three[..group.len()].copy_from_slice(group);
            let all = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for n in 0..=group.len() {
                out.push(alphabet[(all >> (18 - 6 * n)) as usize & 63].into());
            }
            if padded {
                out.push_str(&"=".repeat(3 - group.len()));
            }
        }
        out
    }

    fn check(echo: &str) {
        let said = format!("refused: <{echo}> is no key");
        let redacted = SecretRedactor::new([SECRET]).redact(&said);
        assert_eq!(redacted, "refused: <[key]> is no key", "{said}");
    }

    #[test]
    fn every_written_form_is_removed() {
        assert_eq!(base64("Ma", STANDARD, true), "TWE=");
        check(SECRET);
        check("sk-p/a+ss w\\\"örd~1");
        check("sk-p\\/a+ss w\\\"örd~1");
        check("sk-p%2Fa%2Bss%20w%22%C3%B6rd~1");
        check("sk-p%2fa%2bss%20w%22%c3%b6rd~1");
        check("sk-p%2Fa%2Bss+w%22%C3%B6rd%7E1");
    }

    #[test]
    fn base64_is_removed_at_every_position() {
        for before in ["", "u:", "me:", "you:", "someone@example.com:"] {
            for behind in ["", "\n", "&x", "&x=1"] {
                for alphabet in [STANDARD, URL_SAFE] {
                    for padded in [true, false] {
                        let text = format!("{before}{SECRET}{behind}");
                        check(&base64(&text, alphabet, padded));
                    }
                }
            }
        }
    }

    #[test]
    fn other_texts_stay_unchanged() {
        let redactor = SecretRedactor::new([SECRET, "", "abc"]);
        let text = "Basic dXNlcjpwYXNz in /a/path?x=%2F, größe YWI";
        assert_eq!(redactor.redact(text), text);
        assert_eq!(redactor.redact("abcabc"), "[key][key]");
        assert!(!format!("{redactor:?}").contains("abc"));
        assert_eq!(SecretRedactor::default().redact(text), text);
    }
}
