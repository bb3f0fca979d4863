//! Pipes to an MCP server's standard input and output.
//!
//! A process that Allstop starts has no standard input, and one pipe for all of its output. This is right for commands,
//! but a server needs two separate streams. So Allstop starts a shell, which opens two named pipes and then replaces
//! itself with the server. The server's standard error remains the output of the process.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::net::unix::pipe;

use super::connection_loss::ConnectionLoss;
use super::server_output::ServerOutput;

/// Shell script that opens both pipes, prints an empty line to report that they are open, and replaces itself with the
/// server.
const SCRIPT: &str = r#"exec <"$1" >"$2" && echo && shift 2 && exec "$@""#;

/// The pipes during the start of a server.
pub(super) struct ServerPipes {
    folder: PipeFolder,
    input: ServerInput,
    output: pipe::Receiver,
    /// The server's ends of the pipes. They are kept open so that neither pipe reaches its end of stream before the
    /// server has opened both pipes.
    server_ends: (OwnedFd, OwnedFd),
}

/// A folder that is removed with its content when this value is dropped. The pipes stay usable, because open pipes need
/// no names.
struct PipeFolder(PathBuf);

impl Drop for PipeFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl ServerPipes {
    /// Creates the pipes in a new private folder.
    pub(super) fn make(below: &Path) -> io::Result<Self> {
        let folder = below.join(format!("mcp-{}", ulid::Ulid::generate()));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(below)?;
        builder.recursive(false).create(&folder)?;
        let folder = PipeFolder(folder);
        let (input, output) = (folder.0.join("in"), folder.0.join("out"));
        create_fifo(&input)?;
        create_fifo(&output)?;
        // A FIFO can be opened for writing only if it has a reader, and a reader of a FIFO without a writer would read
        // the end of the stream. So this process first opens the server's ends of both FIFOs too.
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reads_input = rustix::fs::open(&input, OFlags::RDONLY | flags, Mode::empty())?;
        let options = pipe::OpenOptions::new();
        let sender = options.open_sender(&input)?;
        let receiver = options.open_receiver(&output)?;
        let writes_output = rustix::fs::open(&output, OFlags::WRONLY | flags, Mode::empty())?;
        Ok(Self {
            folder,
            input: ServerInput(Arc::new(Mutex::new(Some(sender)))),
            output: receiver,
            server_ends: (reads_input, writes_output),
        })
    }

    /// Command line that runs in place of the server's command.
    pub(super) fn command(&self, command: &OsString, args: &[OsString]) -> Vec<OsString> {
        let own = ["-c".into(), SCRIPT.into(), "sh".into()];
        let pipes = ["in", "out"].map(|name| self.folder.0.join(name).into_os_string());
        let words = own.into_iter().chain(pipes);
        words
            .chain([command.clone()])
            .chain(args.iter().cloned())
            .collect()
    }

    pub(super) fn input(&self) -> ServerInput {
        self.input.clone()
    }

    /// Waits until the server has opened its ends of the pipes. From then on, the output ends when `exit` resolves.
    pub(super) async fn opened(
        self,
        exit: BoxFuture<'static, ()>,
        loss: ConnectionLoss,
    ) -> io::Result<(ServerOutput, ServerInput)> {
        let Self {
            folder,
            input,
            mut output,
            server_ends,
        } = self;
        let mut line = [0; 1];
        output.read_exact(&mut line).await?;
        drop(server_ends);
        drop(folder);
        Ok((ServerOutput::new(output, exit, loss), input))
    }
}

#[cfg(not(target_vendor = "apple"))]
fn create_fifo(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkfifoat(
        rustix::fs::CWD,
        path,
        Mode::RUSR | Mode::WUSR,
    )?)
}

#[cfg(target_vendor = "apple")]
fn create_fifo(path: &Path) -> io::Result<()> {
    let made = std::process::Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(path)
        .status()?;
    made.success()
        .then_some(())
        .ok_or_else(|| io::Error::other("mkfifo failed"))
}

/// The server's standard input. If one clone is closed, all clones are closed. The server should then end.
#[derive(Debug, Clone)]
pub(super) struct ServerInput(Arc<Mutex<Option<pipe::Sender>>>);

impl ServerInput {
    pub(super) fn close(&self) {
        drop(self.0.lock().take());
    }

    fn with(
        &self,
        then: impl FnOnce(Pin<&mut pipe::Sender>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &mut *self.0.lock() {
            Some(pipe) => then(Pin::new(pipe)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl AsyncWrite for ServerInput {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|pipe| pipe.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}
