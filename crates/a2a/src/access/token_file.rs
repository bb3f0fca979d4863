//! Bearer tokens, stored as hashes in a file.
//!
//! ```text
//! # name and SHA-256 of the token, in hexadecimal
//! alice 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//!
//! The file contains no token, so reading the file grants no access. The hashes have no salt, because a random token is
//! too long to be guessed.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::HeaderMap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::jwt::JWT_PRINCIPAL_PREFIX;
use super::principal::{Authenticator, Principal, Unauthenticated, bearer_token};

type TokenHash = [u8; 32];

/// Authenticator for bearer tokens. Clones share the tokens.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    tokens: watch::Sender<HashMap<TokenHash, Principal>>,
    /// SHA-256 of the content at the last read. Times and sizes cannot replace it, because a user can restore them.
    last_read: Arc<Mutex<Option<[u8; 32]>>>,
}

/// Reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("the token file {} cannot be read", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// A line does not consist of a name and a hash.
    #[error("line {line} of the token file is not `NAME SHA256`: {reason}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// Description of the fault.
        reason: &'static str,
    },
    /// The file contains no token.
    #[error("the token file is empty: add a line `NAME SHA256`, or every request is refused")]
    Empty,
}

impl TokenFile {
    /// Reads a token file. Reads from disk, so call it on a thread that may block.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        let file = Self {
            path: path.into(),
            tokens: watch::Sender::default(),
            last_read: Arc::default(),
        };
        file.reload()?;
        Ok(file)
    }

    /// Reads the file, and replaces the tokens if its content has changed. Returns true if it has changed. Reads from disk, so call it on a
    /// thread that may block.
    ///
    /// # Errors
    /// If the file is missing or contains no token, all tokens are revoked. After another error the tokens do not change,
    /// because an administrator may be editing the file.
    pub fn reload(&self) -> Result<bool, TokenFileError> {
        let reloaded = self.reload_changed();
        let is_revoked = match &reloaded {
            Err(TokenFileError::Empty) => true,
            Err(TokenFileError::Read(_, error)) => error.kind() == ErrorKind::NotFound,
            _ => false,
        };
        if is_revoked {
            self.tokens.send_replace(HashMap::new());
        }
        reloaded
    }

    fn reload_changed(&self) -> Result<bool, TokenFileError> {
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|error| TokenFileError::Read(self.path.clone(), error));
        let content = text.as_ref().ok().map(|text| Sha256::digest(text).into());
        // A broken file is parsed and reported only once. A file that cannot be read is read again.
        let last = std::mem::replace(&mut *self.last_read.lock(), content);
        let text = text?;
        if last == content {
            return Ok(false);
        }
        let tokens = parse(&text)?;
        self.tokens.send_replace(tokens);
        Ok(true)
    }

    /// False if all tokens are revoked, because the file is missing or contains no token.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.borrow().is_empty()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn parse(text: &str) -> Result<HashMap<TokenHash, Principal>, TokenFileError> {
    let mut tokens = HashMap::new();
    for (line, entry) in (1..).zip(text.lines()) {
        let entry = entry.trim();
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        let wrong = |reason| TokenFileError::Line { line, reason };
        let (name, hash) = entry
            .split_once(char::is_whitespace)
            .ok_or_else(|| wrong("the hash is missing"))?;
        let principal =
            Principal::new(name).map_err(|_| wrong("the name is not printable ASCII"))?;
        if name.starts_with(JWT_PRINCIPAL_PREFIX) {
            return Err(wrong(
                "names that begin with `jwt:` are those of signed tokens",
            ));
        }
        let hash = hash_of_hex(hash.trim())
            .ok_or_else(|| wrong("the hash has not 64 hexadecimal digits"))?;
        if tokens.insert(hash, principal).is_some() {
            return Err(wrong("the hash is a duplicate"));
        }
    }
    if tokens.is_empty() {
        return Err(TokenFileError::Empty);
    }
    Ok(tokens)
}

fn hash_of_hex(hex: &str) -> Option<TokenHash> {
    let mut hash = TokenHash::default();
    if hex.len() != 2 * hash.len() || !hex.is_ascii() {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(hash)
}

impl Authenticator for TokenFile {
    // The token is hashed before the lookup, so the time of the lookup reveals nothing about other tokens.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        let token = bearer_token(headers).ok_or(Unauthenticated)?;
        let hash: TokenHash = Sha256::digest(token).into();
        let principal = self.tokens.borrow().get(&hash).cloned();
        principal.ok_or(Unauthenticated)
    }

    fn revoked(&self, headers: &HeaderMap) -> BoxFuture<'static, ()> {
        let Ok(accepted) = self.authenticate(headers) else {
            return Box::pin(std::future::ready(()));
        };
        let (file, headers) = (self.clone(), headers.clone());
        let mut tokens = self.tokens.subscribe();
        Box::pin(async move {
            // The change is seen even if it came before the first poll. `file` holds the sender, so no wait fails.
            while file.authenticate(&headers).as_ref() == Ok(&accepted) {
                let _changed = tokens.changed().await;
            }
        })
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .field("tokens", &self.tokens.borrow().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::AUTHORIZATION;

    use super::*;

    /// SHA-256 of `test`.
    const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn headers(authorization: &str) -> HeaderMap {
        let value = authorization.parse().unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn token_names_its_principal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("# people\n\nalice {HASH_OF_TEST}\n")).unwrap();
        let file = TokenFile::open(&path).unwrap();
        let alice = Ok(Principal::new("alice").unwrap());
        assert_eq!(file.authenticate(&headers("Bearer test")), alice);
        assert_eq!(file.authenticate(&headers("bearer  test")), alice);
        for wrong in ["Bearer tes", "Bearer ", "Basic test", "test", HASH_OF_TEST] {
            assert_eq!(
                file.authenticate(&headers(wrong)),
                Err(Unauthenticated),
                "{wrong}"
            );
        }
        assert_eq!(file.authenticate(&HeaderMap::new()), Err(Unauthenticated));
    }

    /// An operator who hashes an unset variable by mistake writes this token file, with the hash of the empty text.
    #[test]
    fn empty_token_is_never_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let hash_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        std::fs::write(&path, format!("alice {hash_of_nothing}")).unwrap();
        let file = TokenFile::open(&path).unwrap();
        for empty in ["Bearer ", "Bearer  "] {
            let accepted = file.authenticate(&headers(empty));
            assert_eq!(accepted, Err(Unauthenticated), "{empty:?}");
        }
    }

    #[test]
    fn changed_file_is_read_again_and_a_broken_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("alice {HASH_OF_TEST}\n")).unwrap();
        let file = TokenFile::open(&path).unwrap();
        assert!(!file.reload().unwrap());
        let change = |text: &str| std::fs::write(&path, text).unwrap();
        change(&format!("bob {HASH_OF_TEST}"));
        assert!(file.reload().unwrap());
        let bob = Ok(Principal::new("bob").unwrap());
        assert_eq!(file.authenticate(&headers("Bearer test")), bob);
        let of_jwt = format!("jwt:bob {HASH_OF_TEST}");
        for broken in ["carol", "carol 12", "carol zz", "a b\nc", &of_jwt] {
            change(broken);
            assert!(file.reload().is_err(), "{broken:?}");
            assert_eq!(file.authenticate(&headers("Bearer test")), bob);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file.reload(), Err(TokenFileError::Read(..))));
    }

    /// The size and the time of a file are no proof that its tokens are unchanged.
    #[test]
    fn file_with_the_old_size_and_time_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("alice {HASH_OF_TEST}\n")).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let restore_time = |path: &Path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(modified).unwrap();
        };
        let file = TokenFile::open(&path).unwrap();
        let other = HASH_OF_TEST.replace('9', "8");
        std::fs::write(&path, format!("alice {other}\n")).unwrap();
        restore_time(&path);
        assert!(file.reload().unwrap());
        assert!(file.authenticate(&headers("Bearer test")).is_err());
        // Another file under the same name.
        let new = folder.path().join("new");
        std::fs::write(&new, format!("carol {HASH_OF_TEST}\n")).unwrap();
        restore_time(&new);
        std::fs::rename(&new, &path).unwrap();
        assert!(file.reload().unwrap());
        let carol = Ok(Principal::new("carol").unwrap());
        assert_eq!(file.authenticate(&headers("Bearer test")), carol);
        assert!(!file.reload().unwrap());
    }

    #[test]
    fn missing_or_empty_file_revokes_all_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let written = |text: &str| std::fs::write(&path, text).unwrap();
        let line = format!("alice {HASH_OF_TEST}\n");
        written(&line);
        let file = TokenFile::open(&path).unwrap();
        let is_admitted = || file.authenticate(&headers("Bearer test")).is_ok();
        std::fs::remove_file(&path).unwrap();
        assert!(file.reload().is_err());
        assert!(!is_admitted(), "the file is gone");
        assert!(!file.has_tokens());
        written(&line);
        assert!(file.reload().unwrap());
        assert!(is_admitted() && file.has_tokens());
        written("# nobody\n");
        assert!(matches!(file.reload(), Err(TokenFileError::Empty)));
        assert!(!is_admitted(), "the file is empty");
        written("alice half a line\n");
        assert!(file.reload().is_err());
    }
}
