//! Files of a session that a program stores.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::SessionId;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::session_files::{SessionFileStore, StoredFileChange, check_count, if_found};
use crate::connection::Client;

/// Maximum wait for the answer of a program. A program that stores files elsewhere answers in seconds.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Files that a program stores.
#[derive(Debug)]
pub(crate) struct ProgramFiles {
    pub(crate) client: Arc<Client>,
    pub(crate) session: SessionId,
    /// Folder of the files in the storage of the program.
    pub(crate) folder: Arc<str>,
}

/// Failure that a program reports.
#[derive(Debug, Deserialize)]
struct ProgramFileError {
    code: String,
    message: Option<String>,
}

impl From<ProgramFileError> for io::Error {
    fn from(error: ProgramFileError) -> Self {
        let kind = match error.code.as_str() {
            "ENOENT" => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error.message.unwrap_or(error.code))
    }
}

#[derive(Deserialize)]
struct FolderEntry {
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

impl ProgramFiles {
    /// Sends a request about a file to the program. The error is in the answer, or is the answer itself.
    async fn request(&self, method: &str, name: &str, more: Value) -> io::Result<Value> {
        let mut params = more;
        params["sessionId"] = self.session.as_str().into();
        params["path"] = self.path_of(name).into();
        let method = format!("sessionFs.{method}");
        let answering = self.client.request::<Value>(&method, &params);
        let answer = match timeout(ANSWER_MAX, answering).await {
            Ok(answer) => answer.map_err(io::Error::other)?,
            Err(_elapsed) => {
                let message = format!("the program did not answer {method} in {ANSWER_MAX:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        };
        let inner = answer.get("error").filter(|error| !error.is_null());
        let error = inner.or_else(|| answer.get("code").map(|_| &answer));
        match error {
            Some(error) => {
                let error = ProgramFileError::deserialize(error).map_err(io::Error::other)?;
                Err(error.into())
            }
            None => Ok(answer),
        }
    }

    async fn make_folder_of(&self, name: &str) -> io::Result<()> {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let all = json!({ "recursive": true });
        self.request("mkdir", folder, all).await.map(drop)
    }
}

fn text_of(mut answer: Value) -> io::Result<String> {
    match answer.get_mut("content").map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(io::Error::other("the answer of the program has no content")),
    }
}

impl SessionFileStore for ProgramFiles {
    fn path_of(&self, name: &str) -> String {
        let folder = self.folder.trim_end_matches('/');
        if name.is_empty() {
            return folder.to_owned();
        }
        format!("{folder}/{name}")
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Option<String>>> {
        async move {
            let read = self.request("readFile", name, json!({})).await;
            if_found(read)?.map(text_of).transpose()
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        content: &'a str,
    ) -> BoxFuture<'a, io::Result<StoredFileChange>> {
        async move {
            let found = self.request("exists", name, json!({})).await?;
            self.make_folder_of(name).await?;
            self.request("writeFile", name, json!({ "content": content }))
                .await?;
            Ok(StoredFileChange::of(found["exists"] == true))
        }
        .boxed()
    }

    fn append<'a>(&'a self, name: &'a str, content: &'a str) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let more = json!({ "content": content });
            self.request("appendFile", name, more).await.map(drop)
        }
        .boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<bool>> {
        async move {
            let removed = self.request("rm", name, json!({})).await;
            Ok(if_found(removed)?.is_some())
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, io::Result<Vec<String>>> {
        async move {
            let (mut folders, mut files) = (vec![String::new()], Vec::new());
            while let Some(next) = folders.pop() {
                let path = format!("{folder}/{next}");
                let read = self.request("readdirWithTypes", path.trim_end_matches('/'), json!({}));
                let Some(mut read) = if_found(read.await)? else {
                    continue;
                };
                let entries = read.get_mut("entries").map(Value::take);
                let entries: Vec<FolderEntry> = serde_json::from_value(entries.unwrap_or_default())
                    .map_err(io::Error::other)?;
                for entry in entries {
                    check_count(files.len() + folders.len())?;
                    let name = if next.is_empty() {
                        entry.name
                    } else {
                        format!("{next}/{}", entry.name)
                    };
                    if entry.kind == "directory" {
                        folders.push(name);
                    } else {
                        files.push(name);
                    }
                }
            }
            files.sort();
            Ok(files)
        }
        .boxed()
    }
}
