//! A real language model, served by llama.cpp on a loopback port.
//!
//! Use this model in tests that need real streaming and a real stop. After a connection is closed, the CPU time of the
//! server stops growing. No code of the test can fake this fact. The model is tiny (135 million parameters, about 70
//! tokens a second on one thread): its streams are useful, but its decisions are not.
//!
//! `cargo xtask parts` fetches the server and the model (`cargo xtask test` runs this command first). If they are
//! missing, [`LlamaServer::start`] panics with a message. A test never skips because they are missing.
//!
//! ```no_run
//! use allstop_testkit::llama::LlamaServer;
//!
//! let server = LlamaServer::start();
//! println!("--base-url {} --model {}", server.base_url(), LlamaServer::MODEL);
//! ```

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::installed_part::folder_of;

/// If the server shows no activity for this time, it counts as idle. The time is three of the kernel's 10 ms clock
/// ticks, and a thread that decodes tokens shows activity in at least two of them.
const IDLE_WINDOW: Duration = Duration::from_millis(30);

/// Interval between two samples of activity. The interval is short enough to see a runnable thread several times in one
/// window, and long enough to leave the CPU cores to the measured server.
const SAMPLE_EVERY: Duration = Duration::from_millis(3);

/// The kernel's unit of CPU time in `/proc/<pid>/stat`: always 100 per second for user space.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// A running server, killed when this value is dropped.
///
/// The server also ends when this process ends in any other way, because its standard input closes.
#[derive(Debug)]
#[must_use = "dropping the server kills it"]
pub struct LlamaServer {
    child: Child,
    port: u16,
}

impl LlamaServer {
    /// The name of the model in the server.
    pub const MODEL: &str = "smollm2";

    /// Starts a server and waits until it answers, which takes about a second.
    ///
    /// Blocks the thread while it waits. If the server is not ready after a minute, the server itself exits.
    ///
    /// # Panics
    /// Panics if the server was never fetched, if Python cannot be started, or if the server does not become ready. In
    /// the last case the server's errors are on standard error.
    pub fn start() -> Self {
        let child = Command::new("python3")
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/parts/llama_server.py"
            ))
            .arg(folder_of("llama"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        // From here on dropping `server` kills the child.
        let mut server = Self { child, port: 0 };
        let mut said = String::new();
        let stdout = server.child.stdout.take().expect("it is piped");
        // If the line cannot be read, the text stays empty, and the parser below reports the error.
        BufReader::new(stdout)
            .read_line(&mut said)
            .unwrap_or_default();
        let port = said.trim().parse();
        server.port =
            port.unwrap_or_else(|_| panic!("the llama server is not ready (it said {said:?})"));
        server
    }

    /// The address for an OpenAI-compatible client, `http://127.0.0.1:PORT/v1/`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/", self.port)
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The CPU time that the server has used so far, in steps of 10 ms (Linux only).
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let fields = fields_after_name(&stat);
        // The fields 14 and 15 of proc(5) are utime and stime. This list starts after the name, which is field 2, so
        // the first element of the list is field 3.
        let ticks: u32 = fields
            .iter()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u32>().ok())
            .sum();
        Ok(CLOCK_TICK * ticks)
    }

    /// Waits until the server has been idle for a moment. Returns the time from the call of this function to the last
    /// activity of the server. `None` if the server was still active when `limit` had passed.
    ///
    /// Idle means that the CPU time of the server does not grow *and* that none of its threads waits for a core. On a
    /// busy machine, the first condition alone could only mean that other processes used the cores.
    ///
    /// # Cancel safety
    /// Cancel safe: the function only reads.
    pub async fn idle_after(&self, limit: Duration) -> io::Result<Option<Duration>> {
        let begin = Instant::now();
        let mut last_active = begin;
        let mut seen = self.cpu_time()?;
        loop {
            let now = self.cpu_time()?;
            if now != seen || self.has_runnable_thread()? {
                last_active = Instant::now();
                seen = now;
            }
            if last_active.elapsed() >= IDLE_WINDOW {
                return Ok(Some(last_active - begin));
            }
            if begin.elapsed() >= limit + IDLE_WINDOW {
                return Ok(None);
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
    }

    fn has_runnable_thread(&self) -> io::Result<bool> {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            // A thread may have ended since its folder was listed. Such a thread is not runnable.
            let stat = fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
            if fields_after_name(&stat).first() == Some(&"R") {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        // Both calls fail only if the child has already been reaped, and no other code can reap it.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// The fields of a `stat` file that follow the name of the process. The name itself can contain blanks.
fn fields_after_name(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')')
        .map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a b) c) R 1 7 7 0 -1 0 0 0 0 0 12 3 0 0 20 0 1 0 5";
        let fields = fields_after_name(stat);
        assert_eq!(fields.first(), Some(&"R"));
        assert_eq!(fields.get(11..13), Some(&["12", "3"][..]));
    }

    /// These tests measure time, so no other test may run at the same time (see `.config/nextest.toml`).
    mod alone {
        use std::io::{Read as _, Write as _};
        use std::net::TcpStream;
        use std::path::PathBuf;

        use super::*;

        fn begin_stream(server: &LlamaServer) -> TcpStream {
            let body = format!(
                r#"{{"model":"{}","stream":true,"max_tokens":4000,"ignore_eos":true,
                   "messages":[{{"role":"user","content":"Count from one to one thousand."}}]}}"#,
                LlamaServer::MODEL
            );
            let mut connection = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
            write!(
                connection,
                "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .expect("send the request");
            connection
        }

        #[tokio::test]
        async fn a_closed_stream_leaves_the_server_idle_at_once() {
            let server = LlamaServer::start();
            let mut connection = begin_stream(&server);
            let mut streamed = String::new();
            let mut chunk = [0; 4096];
            while streamed.matches("data: ").count() < 10 {
                let len = connection.read(&mut chunk).expect("a chunk");
                assert_ne!(len, 0, "the stream ended early: {streamed}");
                streamed.push_str(&String::from_utf8_lossy(
                    chunk.get(..len).expect("read that much"),
                ));
            }
            let busy = server
                .idle_after(Duration::from_millis(200))
                .await
                .expect("look");
            assert_eq!(busy, None, "while it streams, it must not look idle");

            drop(connection);
            let idle = server
                .idle_after(Duration::from_secs(2))
                .await
                .expect("look");
            let idle = idle.expect("idle within two seconds");
            assert!(
                idle < Duration::from_millis(100),
                "idle only after {idle:?}"
            );
        }

        #[test]
        fn dropping_it_leaves_no_process() {
            let server = LlamaServer::start();
            let process = PathBuf::from(format!("/proc/{}", server.pid()));
            assert!(process.exists());
            drop(server);
            assert!(!process.exists());
        }
    }
}
