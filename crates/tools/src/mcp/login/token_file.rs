//! The file with the tokens of one MCP server.
//!
//! Invariants:
//! 1. Only its owner can read the file. A file with other rights, another owner or another kind is not used.
//! 2. A reader sees a whole file, because a complete file replaces the old one.
//! 3. The tokens go only to their URL.
//! 4. A process changes the tokens only while it holds the lock, so no process loses tokens that another one has got.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rmcp::transport::auth::StoredCredentials;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::error::McpLoginError;

/// Maximum size of the file, in bytes: many times the size of two long tokens.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Maximum wait for another process that changes the tokens. That process makes a few requests, each with a time limit.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// Pause between two attempts to get the lock. The operating system has no wait with a time limit.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Remaining life of a token at which it is renewed, in seconds: a request takes less.
const RENEW_BEFORE_S: u64 = 30;

/// The file of one server.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct LoginTokenFile {
    path: PathBuf,
}

/// Content of the file: the client and its tokens. `Debug` shows no secret.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    /// URL of the server that the tokens belong to.
    pub(super) url: String,
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    /// Endpoint at which the tokens are revoked, if the authorization server names one.
    #[serde(default)]
    pub(super) revocation_endpoint: Option<String>,
    pub(super) credentials: StoredCredentials,
}

impl fmt::Debug for StoredLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredLogin")
    }
}

/// Lock of a file. Dropping the value releases the lock.
pub(super) struct TokenLock {
    _file: File,
}

impl LoginTokenFile {
    /// The file for a server with this name and URL. Two servers with one name, such as those of the user and of a
    /// project, have separate files.
    pub(super) fn new(folder: &Path, server: &str, url: &str) -> Self {
        Self {
            path: folder.join(format!("{server}.{:016x}.json", hash_of(url))),
        }
    }

    /// The files of all servers with this name.
    pub(super) fn all(folder: &Path, server: &str) -> Vec<Self> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let named = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let hash = name.strip_prefix(server)?.strip_prefix('.')?;
            let hash = hash.strip_suffix(".json")?;
            (hash.len() == 16).then_some(Self { path })
        });
        named.collect()
    }

    /// Reads the login for any URL. `None` if there is none.
    pub(super) fn read_any(&self) -> Result<Option<StoredLogin>, McpLoginError> {
        let Some(bytes) = self.read_bytes()? else {
            return Ok(None);
        };
        parse(&bytes).map(Some).map_err(|why| self.unusable(why))
    }

    /// Reads the login for a URL. `None` if there is none.
    pub(super) fn read(&self, url: &str) -> Result<Option<StoredLogin>, McpLoginError> {
        let login = self.read_any()?;
        Ok(login.filter(|login| login.url == url))
    }

    /// A value that changes with the file.
    pub(super) fn version(&self) -> Option<(u64, i64, i64)> {
        let metadata = fs::symlink_metadata(&self.path).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
    }

    fn read_bytes(&self) -> Result<Option<Vec<u8>>, McpLoginError> {
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = match options.open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.unusable(error.to_string()))?,
        };
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| self.unusable(error.to_string()))?;
        if !metadata.is_file() {
            return Err(self.unusable("it is not a file"));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.unusable("it belongs to another user"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(
                self.unusable("other users may have access; check it, and run `chmod 600` on it")
            );
        }
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.unusable(error.to_string()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(self.unusable("it is too large"));
        }
        Ok(Some(bytes))
    }

    /// Waits for the lock. The folder is created if it does not exist.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn lock(&self) -> Result<TokenLock, McpLoginError> {
        let path = self.path.with_extension("lock");
        let file = self
            .open_lock(&path)
            .map_err(|error| self.unusable(error.to_string()))?;
        let until = Instant::now() + LOCK_WAIT_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(TokenLock { _file: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(LOCK_PAUSE).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(self.unusable(format!(
                        "another process has held its lock for {LOCK_WAIT_MAX:?}"
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(self.unusable(error.to_string())),
            }
        }
    }

    fn open_lock(&self, path: &Path) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        options.open(path)
    }

    /// Replaces the file.
    pub(super) fn write(
        &self,
        login: &StoredLogin,
        _lock: &TokenLock,
    ) -> Result<(), McpLoginError> {
        let bytes = serde_json::to_vec(login).map_err(|error| self.unusable(error.to_string()))?;
        let new = self
            .path
            .with_extension(format!("{}.new", std::process::id()));
        let written = write_new(&new, &bytes).and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        written.map_err(|error| self.unusable(error.to_string()))
    }

    /// Removes the file. False if there was none.
    pub(super) fn remove(&self, _lock: &TokenLock) -> Result<bool, McpLoginError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed
                .map(|()| true)
                .map_err(|error| self.unusable(error.to_string())),
        }
    }

    fn unusable(&self, why: impl Into<String>) -> McpLoginError {
        McpLoginError::File {
            path: self.path.clone(),
            why: why.into(),
        }
    }
}

/// Hash of a URL (FNV-1a), which never changes between versions. No secret depends on it, because the file contains its
/// URL.
fn hash_of(url: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    url.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A file of a process that was killed may remain, and its process id may return.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Parses the content of the file. The error contains nothing of the content.
pub(super) fn parse(bytes: &[u8]) -> Result<StoredLogin, &'static str> {
    serde_json::from_slice(bytes).map_err(|_error| "it has no valid content")
}

impl StoredLogin {
    /// The access token, and true if it must be renewed before its use.
    pub(super) fn access_token(&self) -> Option<(String, bool)> {
        let response = serde_json::to_value(self.credentials.token_response.as_ref()?).ok()?;
        let token = response.get("access_token")?.as_str()?.to_owned();
        let life = response.get("expires_in").and_then(Value::as_u64);
        let is_old = match (life, self.credentials.token_received_at) {
            (Some(life), Some(received_at)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let age = now
                    .unwrap_or_default()
                    .as_secs()
                    .saturating_sub(received_at);
                // A token with a short life is not renewed before each request.
                life.saturating_sub(age) < RENEW_BEFORE_S.min(life / 2).max(1)
            }
            _ => false,
        };
        Some((token, is_old))
    }

    /// True if the tokens can be renewed without the person.
    pub(super) fn is_renewable(&self) -> bool {
        let response = self.credentials.token_response.as_ref();
        let response = response.and_then(|response| serde_json::to_value(response).ok());
        response.is_some_and(|response| response.get("refresh_token").is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use serde_json::json;

    use super::*;

    fn login(url: &str) -> StoredLogin {
        serde_json::from_value(json!({
            "url": url, "client_secret": null, "redirect_uri": "http://127.0.0.1/callback",
            "credentials": {"client_id": "c", "token_response": {
                "access_token": "SECRET", "token_type": "bearer", "expires_in": 100,
            }, "token_received_at": 1},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn only_a_private_file_of_the_same_url_is_used() {
        let place = tempfile::tempdir().unwrap();
        let file = LoginTokenFile::new(&place.path().join("logins"), "t", "http://a");
        assert!(file.read("http://a").unwrap().is_none());
        let lock = file.lock().await.unwrap();
        file.write(&login("http://a"), &lock).unwrap();
        let read = file.read("http://a").unwrap().unwrap();
        assert_eq!(read.access_token(), Some(("SECRET".to_owned(), true)));
        assert!(!read.is_renewable());
        assert!(file.read("http://b").unwrap().is_none());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&file.path), 0o600);
        assert_eq!(mode(file.path.parent().unwrap()), 0o700);
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = file.read("http://a").unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert!(file.remove(&lock).unwrap() && !file.remove(&lock).unwrap());
        symlink("/dev/null", &file.path).unwrap();
        assert!(file.read("http://a").is_err());
    }

    #[tokio::test]
    async fn servers_with_one_name_have_separate_files() {
        let place = tempfile::tempdir().unwrap();
        let files = ["http://a", "http://b"].map(|url| LoginTokenFile::new(place.path(), "t", url));
        let other = LoginTokenFile::new(place.path(), "t-2", "http://a");
        for (file, url) in files
            .iter()
            .chain([&other])
            .zip(["http://a", "http://b", "http://a"])
        {
            let lock = file.lock().await.unwrap();
            file.write(&login(url), &lock).unwrap();
        }
        assert!(files[0].read("http://a").unwrap().is_some());
        assert!(files[1].read("http://b").unwrap().is_some());
        assert_eq!(LoginTokenFile::all(place.path(), "t").len(), 2);
        assert_eq!(LoginTokenFile::all(place.path(), "t-2").len(), 1);
    }

    #[test]
    fn error_about_the_content_contains_no_secret() {
        assert_eq!(
            parse(b"{\"url\": \"SECRET").unwrap_err(),
            "it has no valid content"
        );
        assert_eq!(format!("{:?}", login("http://a")), "StoredLogin");
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_lock_is_bounded() {
        let place = tempfile::tempdir().unwrap();
        let file = LoginTokenFile::new(place.path(), "t", "http://a");
        let held = file.lock().await.unwrap();
        assert!(matches!(file.lock().await, Err(McpLoginError::File { .. })));
        drop(held);
        assert!(file.lock().await.is_ok());
    }
}
