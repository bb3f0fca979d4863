//! Check of the URLs that clients name.

/// Checks that a URL has the scheme `http` or `https` and a host. `field` is the name of the URL in the parameters.
///
/// # Errors
/// Returns the reason, for people, why the URL cannot be used.
pub(crate) fn check_url(field: &str, url: &str) -> Result<(), String> {
    let (scheme, rest) = url.trim().split_once("://").unwrap_or_default();
    let is_http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    let has_host = !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']);
    if is_http && has_host {
        return Ok(());
    }
    Err(format!(
        "`{field}` is {url:?}: use a URL that begins with http:// or https:// and names a host"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_needs_a_scheme_and_a_host() {
        for url in [
            "http://h",
            "HTTPS://h/x",
            "http://[::1]:8/v1",
            " https://u:p@h ",
        ] {
            assert_eq!(check_url("url", url), Ok(()), "{url}");
        }
        for url in [
            "",
            "h",
            "h:1/x",
            "http:",
            "http://",
            "http:///x",
            "http://:80",
            "file:///x",
        ] {
            assert!(check_url("url", url).is_err(), "{url}");
        }
    }
}
