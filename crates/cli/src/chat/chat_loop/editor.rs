//! Ctrl-G: the user edits the message in an editor. The editor has the terminal until it ends. Output waits, and the
//! turn goes on.

use std::io::{Read as _, Write as _};
use std::process::{Command, ExitStatus};

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use futures::FutureExt as _;

use super::pending::FinishedWork;
use super::{ChatLoop, TerminalUser};
use crate::chat::state::ChatEvent;

/// Starts the editor of the user with the file as its argument.
const EDITOR: &str = r#"exec ${VISUAL:-${EDITOR:-vi}} "$1""#;
/// Maximum bytes of an edited message; a longer one should be a file that the model reads.
const BYTES_MAX: u64 = 1024 * 1024;

impl ChatLoop<'_> {
    pub(super) fn open_editor(&mut self) {
        let text = self.state.whole_text();
        self.terminal = TerminalUser::Editor;
        self.chat.view.queue().hold();
        self.reader.suspend();
        let scope = Scope::root("editor", self.chat.host.scopes());
        let spec = WorkSpec::new(ItemKind::Thread, "editing the message");
        let editing = scope.spawn_blocking(spec, move |_| edit(&text));
        let edited = async move {
            FinishedWork::Edited(match editing {
                Ok(editing) => editing.await.unwrap_or_else(|lost| Err(lost.to_string())),
                Err(not_started) => Err(not_started.to_string()),
            })
        };
        self.pending.push(edited.boxed());
    }

    pub(super) fn editor_closed(&mut self, edited: Result<String, String>) {
        self.chat.view.queue().release();
        self.come_back();
        match edited {
            Ok(text) => self.apply(ChatEvent::Edited(text)),
            Err(why) => self.note(&format!("the message is unchanged: {why}")),
        }
    }
}

/// Runs the editor on a private file, and returns the text of the file.
fn edit(text: &str) -> Result<String, String> {
    let about = |error: std::io::Error| error.to_string();
    let mut file = tempfile::Builder::new()
        .prefix("allstop-")
        .suffix(".md")
        .tempfile()
        .map_err(about)?;
    file.write_all(text.as_bytes()).map_err(about)?;
    // The editor is in the foreground group of the terminal, like this process, so the keys of the terminal reach it.
    let ended: ExitStatus = Command::new("/bin/sh")
        .args(["-c", EDITOR, "sh"])
        .arg(file.path())
        .status()
        .map_err(about)?;
    if !ended.success() {
        return Err(format!("the editor has failed ({ended})"));
    }
    // Editors replace the file, so it is opened again.
    let mut edited = String::new();
    let opened = std::fs::File::open(file.path()).map_err(about)?;
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
