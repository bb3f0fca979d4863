//! Ctrl-G: the user edits the message in an editor. The editor has the terminal until it ends. Output waits, and the
//! turn goes on.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus};

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Scope, StopRequest, WorkCx, WorkSpec};
use futures::FutureExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::pending::FinishedWork;
use super::{ChatLoop, TerminalUser};
use crate::chat::state::ChatEvent;

/// Starts the editor of the user with the file as its argument.
const EDITOR: &str = r#"eval "exec ${VISUAL:-${EDITOR:-vi}} \"\$1\"""#;
/// Maximum bytes of an edited message; a longer one should be a file that the model reads.
const BYTES_MAX: u64 = 1024 * 1024;
/// Interval between two checks for a stop.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Time for the editor to end after SIGHUP. Editors save the text in it.
const HANG_UP: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

impl ChatLoop<'_> {
    pub(super) fn open_editor(&mut self) {
        let text = self.state.whole_text();
        self.terminal = TerminalUser::Editor;
        self.chat.view.queue().hold();
        self.reader.suspend();
        let scope = Scope::root("editor", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "editing the message");
        let editing = scope.spawn_blocking(spec, move |cx| edit(&text, &cx));
        self.editor = Some(scope);
        let edited = async move {
            FinishedWork::Edited(match editing {
                Ok(editing) => editing.await.unwrap_or_else(|lost| Err(lost.to_string())),
                Err(not_started) => Err(not_started.to_string()),
            })
        };
        self.pending.push(edited.boxed());
    }

    /// Ends an open editor, because the chat ends.
    pub(super) async fn end_editor(&mut self) {
        if let Some(scope) = self.editor.take() {
            let cause = Cause::new(CauseKind::Parent).detail("the chat has ended");
            let stop = scope.stop(StopRequest::new(Extent::Process, cause));
            drop(stop.receipt().await);
            self.chat.view.queue().release();
        }
    }

    pub(super) fn editor_closed(&mut self, edited: Result<String, String>) {
        self.editor = None;
        self.chat.view.queue().release();
        // Keys that the editor has not read are no answer to a question that appears only now.
        self.come_back();
        self.reader.forget_unsent();
        match edited {
            Ok(text) => self.apply(ChatEvent::Edited(text)),
            Err(why) => self.note(&format!("the message is unchanged: {why}")),
        }
    }
}

/// Waits for the end of the editor. After a stop, the editor gets SIGHUP, as at the end of its terminal, and after a
/// second SIGKILL.
fn wait(editor: &mut Child, cx: &WorkCx) -> io::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(editor);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let has_ended = |limit: &Timespec| {
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut fds, Some(limit)) == Ok(1)
    };
    while !has_ended(&LOOK) {
        if cx.checkpoint("editing").is_err() {
            // Fails only if the editor has just ended.
            let _ended = pidfd_send_signal(&process, Signal::HUP);
            if !has_ended(&HANG_UP) {
                let _ended = pidfd_send_signal(&process, Signal::KILL);
            }
            break;
        }
    }
    editor.wait()
}

/// Runs the editor on a private file, and returns the text of the file.
fn edit(text: &str, cx: &WorkCx) -> Result<String, String> {
    let about = |error: io::Error| error.to_string();
    let mut file = tempfile::Builder::new()
        .prefix("allstop-")
        .suffix(".md")
        .tempfile()
        .map_err(about)?;
    file.write_all(text.as_bytes()).map_err(about)?;
    // The editor is in the foreground group of the terminal, like this process, so the keys of the terminal reach it.
    let mut editor = Command::new("/bin/sh")
        .args(["-c", EDITOR, "sh"])
        .arg(file.path())
        .spawn()
        .map_err(about)?;
    let ended = wait(&mut editor, cx).map_err(about)?;
    if !ended.success() {
        return Err(format!("the editor has failed ({ended})"));
    }
    // Editors replace the file, so it is opened again.
    let mut edited = String::new();
    // An editor may have put something else in its place, such as a FIFO, which must not block this thread.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(file.path())
        .map_err(about)?;
    if !opened.metadata().map_err(about)?.is_file() {
        return Err("the editor has left no file".to_owned());
    }
    let read = opened.take(BYTES_MAX + 1).read_to_string(&mut edited);
    read.map_err(about)?;
    if edited.len() as u64 > BYTES_MAX {
        return Err(
            "the text is too long: write it to a file, and ask the model to read the file"
                .to_owned(),
        );
    }
    Ok(edited.trim_end_matches('\n').to_owned())
}
