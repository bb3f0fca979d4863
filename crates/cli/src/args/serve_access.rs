//! Flags that control access to a server over HTTP.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;

use super::values::at_least_one;

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeAccessArgs {
    /// File with `NAME SHA256` lines: the hash of each user's bearer token. Reloaded after each change
    #[arg(long, value_name = "PATH", help_heading = "Access")]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate with its chain, in PEM, for HTTPS and gRPC over TLS. Reloaded after each change
    #[arg(
        long,
        value_name = "PATH",
        requires = "tls_key",
        help_heading = "Access"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(
        long,
        value_name = "PATH",
        requires = "tls_cert",
        help_heading = "Access"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Key set with the public keys of JSON Web Tokens. Reloaded: a file after each change, a URL every 5 minutes
    #[arg(
        long,
        value_name = "PATH|URL",
        requires = "issuer",
        requires = "audience",
        help_heading = "Access"
    )]
    pub(crate) jwks: Option<String>,
    /// Issuer (`iss`) that JSON Web Tokens must have
    #[arg(long, value_name = "ISS", requires = "jwks", help_heading = "Access")]
    pub(crate) issuer: Option<String>,
    /// Audience (`aud`) that JSON Web Tokens must have
    #[arg(long, value_name = "AUD", requires = "jwks", help_heading = "Access")]
    pub(crate) audience: Option<String>,
    /// Maximum requests of one user per second, and in one burst; further requests get status 429 [default: no limit]
    #[arg(long, value_name = "N", value_parser = at_least_one::<NonZeroU32>, help_heading = "Access")]
    pub(crate) rate_limit: Option<NonZeroU32>,
}

impl ServeAccessArgs {
    /// True if clients must authenticate.
    pub(crate) fn authenticates(&self) -> bool {
        self.token_file.is_some() || self.jwks.is_some()
    }
}
