//! URLs: converts a user's base URL to the URL of requests, and to a form without secrets that may be printed.

use url::Url;

use crate::{ModelError, ModelErrorKind};

/// Parses the URL of requests.
pub(super) fn request_url(text: &str) -> Result<Url, ModelError> {
    let wrong = |why: String| {
        ModelError::new(
            ModelErrorKind::Invalid,
            format!("invalid base URL {:?}: {why}", without_secrets(text)),
        )
        .with_hint("write it as http://127.0.0.1:8080 or https://host/v1")
    };
    let url = Url::parse(text.trim()).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it needs http:// or https:// and a host".into()));
    }
    Ok(url)
}

/// Converts `http://host:port` to `http://host:port/v1/chat/completions`. If the base URL contains a path, the path
/// stays.
pub(super) fn completions_url(base: &str) -> Result<Url, ModelError> {
    let mut url = request_url(base)?;
    let path = url.path().trim_end_matches('/');
    let path = match path {
        "" => "/v1/chat/completions".to_owned(),
        path if path.ends_with("/chat/completions") => path.to_owned(),
        path => format!("{path}/chat/completions"),
    };
    url.set_path(&path);
    Ok(url)
}

/// The URL as it appears in messages: without credentials, query and fragment.
pub fn without_secrets(text: &str) -> String {
    match Url::parse(text) {
        Ok(mut url) if url.has_host() => {
            url.set_query(None);
            url.set_fragment(None);
            // A URL with a host can have a user name and a password, so these calls cannot fail.
            if url
                .set_username("")
                .and_then(|()| url.set_password(None))
                .is_err()
            {
                return String::new();
            }
            url.to_string()
        }
        // An invalid URL may still contain a password: keep the part after the last `@`, without the query.
        _ => {
            let shown = text.rsplit('@').next().unwrap_or_default();
            shown.split('?').next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_is_completed_to_chat_completions() {
        let check = |base: &str, expected: &str| {
            assert_eq!(completions_url(base).unwrap().as_str(), expected, "{base}");
        };
        check(
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/v1/chat/completions",
        );
        check(
            "http://127.0.0.1:8080/",
            "http://127.0.0.1:8080/v1/chat/completions",
        );
        check("http://h/v1", "http://h/v1/chat/completions");
        check("https://h/api/v3/", "https://h/api/v3/chat/completions");
        check(
            "https://h/v1/chat/completions",
            "https://h/v1/chat/completions",
        );
    }

    #[test]
    fn invalid_base_url_is_shown_without_its_password() {
        for base in ["ftp://me:hunter2@h/", "me:hunter2@h", "http://", "::"] {
            let error = completions_url(base).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Invalid);
            assert!(!error.message.contains("hunter2"), "{error}");
        }
    }
}
