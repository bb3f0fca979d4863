//! Names of this machine.

/// True for `localhost` and its subdomains, which always refer to this machine (RFC 6761).
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
}
