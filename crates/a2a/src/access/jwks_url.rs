//! Key set of an issuer at a URL, fetched at the start and periodically afterwards.

use std::time::Duration;

use allstop_core::error_chain;
use allstop_scope::WorkCx;
use reqwest::Url;
use tokio::time::{Instant, sleep_until};

use super::jwks::{JwksError, JwtKeySet};
use super::jwt::JwtAuthenticator;

/// Maximum duration of one fetch.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a key set in bytes. A key has less than 4 KiB, including its certificate chain.
const JWKS_BYTES_MAX: usize = 1 << 20;

/// Intervals of the fetches.
#[derive(Debug, Clone, Copy)]
pub struct JwksRefreshTimes {
    /// Time from a successful fetch to the next fetch. A withdrawn key is accepted for at most this time, if the next
    /// fetch succeeds.
    pub interval: Duration,
    /// Minimum time between two fetches: after a failed fetch, and even if many tokens name unknown keys.
    pub interval_min: Duration,
}

impl Default for JwksRefreshTimes {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(5),
            interval_min: Duration::from_secs(30),
        }
    }
}

/// URL of a key set.
#[derive(Debug, Clone)]
pub struct JwksUrl {
    url: Url,
    client: reqwest::Client,
}

impl JwksUrl {
    /// Checks a URL. The URL must use `https`, because a party that can change the keys can act as any user. Only an
    /// address of this machine may use `http`.
    ///
    /// # Errors
    /// Returns an error for any other URL, or if TLS cannot be set up.
    pub fn parse(text: &str) -> Result<Self, JwksError> {
        let url = Url::parse(text).map_err(|error| JwksError::Url(error.to_string()))?;
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback) {
            return Err(JwksError::Url("it must begin with https://".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(JwksError::Url("it must not have a password".to_owned()));
        }
        let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("allstop/", env!("CARGO_PKG_VERSION")))
            .timeout(FETCH_TIME_MAX)
            .pool_max_idle_per_host(0)
            // A redirect could lead to http.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback {
            client = client.no_proxy();
        }
        let client = client
            .build()
            .map_err(|error| JwksError::Fetch(url.to_string(), error.without_url().into()))?;
        Ok(Self { url, client })
    }

    /// Fetches the keys, within ten seconds.
    ///
    /// # Errors
    /// Returns an error if no answer arrives in time, or if the answer is not a key set.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn fetch(&self) -> Result<JwtKeySet, JwksError> {
        let failed = |error| JwksError::Fetch(self.url.to_string(), error);
        let of_client = |error: reqwest::Error| failed(error.without_url().into());
        let response = self.client.get(self.url.clone()).send().await;
        let mut response = response.map_err(of_client)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(failed(format!("status {}", response.status()).into()));
        }
        let mut json = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(of_client)? {
            if json.len() + chunk.len() > JWKS_BYTES_MAX {
                return Err(failed(format!("more than {JWKS_BYTES_MAX} bytes").into()));
            }
            json.extend_from_slice(&chunk);
        }
        JwtKeySet::parse(&json).map_err(|error| failed(error.into()))
    }
}

/// Schedule of the next fetch.
#[derive(Debug)]
struct RefreshSchedule {
    times: JwksRefreshTimes,
    fetched_at: Instant,
    /// True if a token has named an unknown key, or the last fetch failed.
    is_wanted: bool,
}

impl RefreshSchedule {
    fn next_fetch(&self) -> Instant {
        let wait = if self.is_wanted {
            self.times.interval_min
        } else {
            self.times.interval
        };
        self.fetched_at + wait
    }

    fn fetched(&mut self, now: Instant, is_good: bool) {
        self.fetched_at = now;
        self.is_wanted = !is_good;
    }
}

/// Fetches the keys of an authenticator again and again, until a stop covers this work. A failed fetch changes no keys.
///
/// # Cancel safety
/// Dropping the future ends a running fetch. That fetch changes no keys.
pub async fn refresh_keys(
    url: JwksUrl,
    authenticator: JwtAuthenticator,
    times: JwksRefreshTimes,
    cx: WorkCx,
) {
    let mut schedule = RefreshSchedule {
        times,
        fetched_at: Instant::now(),
        is_wanted: false,
    };
    let refreshing = async {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(schedule.next_fetch()) => {}
                () = authenticator.unknown_key(), if !schedule.is_wanted => {
                    schedule.is_wanted = true;
                    continue;
                }
            }
            let fetched = url.fetch().await;
            schedule.fetched(Instant::now(), fetched.is_ok());
            match fetched {
                Ok(keys) => authenticator.replace_keys(keys),
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "the keys are as before");
                }
            }
        }
    };
    tokio::select! {
        biased;
        _cause = cx.stopped_at("refresh of keys") => {}
        () = refreshing => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_urls_are_key_sets() {
        for good in [
            "https://issuer.example/keys",
            "http://127.0.0.1:1/keys",
            "http://[::1]:1/",
            "http://localhost/keys",
        ] {
            assert!(JwksUrl::parse(good).is_ok(), "{good}");
        }
        for wrong in [
            "http://issuer.example/keys",
            "http://127.0.0.1.example/",
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "https://user:secret@issuer.example/",
            "://",
        ] {
            assert!(JwksUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_keys_bring_a_fetch_nearer_only_once() {
        let start = Instant::now();
        let times = JwksRefreshTimes::default();
        let mut schedule = RefreshSchedule {
            times,
            fetched_at: start,
            is_wanted: false,
        };
        assert_eq!(schedule.next_fetch(), start + times.interval);
        for _ in 0..1000 {
            schedule.is_wanted = true;
            assert_eq!(schedule.next_fetch(), start + times.interval_min);
        }
        let second = start + times.interval_min;
        schedule.fetched(second, true);
        assert_eq!(schedule.next_fetch(), second + times.interval);
        schedule.fetched(second, false);
        assert_eq!(schedule.next_fetch(), second + times.interval_min);
    }
}
