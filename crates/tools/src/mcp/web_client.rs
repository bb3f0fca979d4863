//! HTTP client for one host: an MCP server, or its authorization server.

use super::tls_provider::choose_tls_provider;

/// HTTP client for the host of this URL.
pub(super) fn web_client(url: &str) -> Result<reqwest::Client, String> {
    let url = reqwest::Url::parse(url).map_err(|error| format!("invalid URL: {error}"))?;
    choose_tls_provider();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("allstop/", env!("CARGO_PKG_VERSION")))
        // Redirects are not followed: a redirected call is a different call, and the headers are meant only for this
        // host.
        .redirect(reqwest::redirect::Policy::none())
        // Each call has its own connection, so that the end of an abandoned call closes its connection.
        .pool_max_idle_per_host(0);
    let host = url.host_str().unwrap_or_default();
    if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
        builder = builder.no_proxy();
    }
    let built = builder.build();
    built.map_err(|error| {
        format!(
            "the HTTP client could not be created: {}",
            error.without_url()
        )
    })
}
