//! The TLS provider of the connections to servers.

/// Chooses the TLS provider, unless the program has chosen another one.
pub(in crate::mcp) fn choose_tls_provider() {
    // Fails if there is a provider. That provider is kept.
    let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
}
