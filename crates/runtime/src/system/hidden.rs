//! Environment variables that contain secrets. These variables are hidden from everything that a model can access,
//! unless the configuration exempts them.

use std::ffi::{OsStr, OsString};

/// Word endings in the names of variables that contain secrets.
const SECRET_WORDS: [&str; 9] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASSWRD",
    "CREDENTIAL",
];

/// True if a variable is hidden from commands that a model runs, unless the configuration exempts the variable.
///
/// A variable is secret if its name contains a word that ends with `TOKEN`, `KEY`, `SECRET`, `PASS`, `PASSWORD` (or
/// `PASSWD`, `PASSWRD`, `PASSPHRASE`) or `CREDENTIAL`, in upper or lower case, singular or plural. Examples are
/// `GITHUB_TOKEN`, `AWS_ACCESS_KEY_ID` and `PGPASSWORD`, but not `KEYBOARD`, `SSH_AUTH_SOCK` or `MAX_TOKENS`. A
/// variable is also secret if its name contains the word `PAT`, if it ends with `_PWD` or `_AUTH`, or if its value is a
/// URL with a password. Names of programs
/// that prompt for a password (`GIT_ASKPASS`) do not count.
pub fn is_secret_variable(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let is_secret = |word: &str| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let singular = word.strip_suffix('S').filter(|one| !one.ends_with("TOKEN"));
        let ends = |word: &str| SECRET_WORDS.iter().any(|secret| word.ends_with(secret));
        let is_secret = ends(word) || singular.is_some_and(ends);
        word == "PAT" || (is_secret && !word.ends_with("ASKPASS"))
    };
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let ends = ["_PWD", "_AUTH"].iter().any(|end| name.ends_with(end));
    words.any(is_secret) || ends || has_password(&value.to_string_lossy())
}

/// True if a text is a URL of the form `scheme://user:password@host`.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    // Uses the last `@`, since passwords are often written unencoded. A port followed by a path with an `@` therefore
    // also counts as a password, which hides a variable unnecessarily.
    let user = rest.rsplit_once('@').map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':'));
    password.is_some_and(|(name, password)| !password.is_empty() && !name.contains(['/', '?', '#']))
}

/// Returns the hidden variables that the configuration does not exempt, by name or by a prefix that ends with `*`.
pub fn without_exempted(hidden: &[OsString], exempted: &[String]) -> Vec<OsString> {
    let is_named = |name: &str| {
        exempted
            .iter()
            .any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern,
            })
    };
    let hidden = hidden.iter();
    let hidden = hidden.filter(|name| !is_named(&name.to_string_lossy()));
    hidden.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_secret(name: &str, value: &str) -> bool {
        is_secret_variable(name.as_ref(), value.as_ref())
    }

    #[test]
    fn secrets_are_recognised_by_name_and_by_value() {
        for name in [
            "GITHUB_TOKEN",
            "GITHUB_PAT",
            "AZURE_DEVOPS_EXT_PAT",
            "NPM_CONFIG__AUTH",
            "NPM_TOKEN",
            "HF_TOKEN",
            "AWS_SESSION_TOKEN",
            "SLACK_BOT_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "OPENAI_API_KEY",
            "openai_apikey",
            "PGPASSWORD",
            "MYSQL_PWD",
            "SMTP_PASS",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "npm_config_//registry/:_authToken",
            "DJANGO_SECRETS",
            "API_KEY2",
        ] {
            assert!(is_secret(name, "x"), "{name}");
        }
        for name in [
            "SSH_AUTH_SOCK",
            "KEYBOARD_LAYOUT",
            "XDG_RUNTIME_DIR",
            "GPG_TTY",
            "PASSAGE_DIR",
            "GIT_ASKPASS",
            "SSH_ASKPASS",
            "PWD",
            "OLDPWD",
            "MAX_TOKENS",
            "TOKENIZERS_PARALLELISM",
            "PATH",
        ] {
            assert!(!is_secret(name, "x"), "{name}");
        }
        for value in [
            "postgres://app:hunter2@db:5432/app",
            "mysql://app:hun/ter@2@tcp(db)/app",
            "http://user:pw@proxy:3128",
        ] {
            assert!(is_secret("DATABASE_URL", value), "{value}");
        }
        for value in [
            "postgres://app@db:5432/app",
            "http://proxy:3128/x",
            "https://example.com/a:b@c",
            "user:pw@host",
            "",
        ] {
            assert!(!is_secret("DATABASE_URL", value), "{value}");
        }
    }

    #[test]
    fn configured_variables_are_not_hidden() {
        let hidden = ["GITHUB_TOKEN", "NPM_TOKEN", "NPM_KEY", "HF_TOKEN"].map(OsString::from);
        let left = without_exempted(&hidden, &["GITHUB_TOKEN".to_owned(), "NPM_*".to_owned()]);
        assert_eq!(left, ["HF_TOKEN"]);
        assert_eq!(without_exempted(&hidden, &[]), hidden);
    }
}
