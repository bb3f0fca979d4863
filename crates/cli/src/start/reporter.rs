//! Lines that the start of a command prints before other output, such as the chosen model and ignored files.

use allstop_terminal::{OutputPriority, OutputQueue, Style, TextRole};

use crate::host::ProcessHost;

/// Standard error during the start. The thread that reads the configuration can use it, too.
#[derive(Debug, Clone)]
pub(crate) struct StartReporter {
    stderr: OutputQueue,
    style: Style,
    is_quiet: bool,
}

impl StartReporter {
    pub(crate) fn new(host: &ProcessHost) -> Self {
        let stderr = host.output.stderr().clone();
        let style = host.terminal.style(stderr.is_terminal());
        Self {
            stderr,
            style,
            is_quiet: host.is_quiet,
        }
    }

    /// Prints a line, except under `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if self.is_quiet {
            return;
        }
        self.stderr.sentences(
            self.style.paint(TextRole::Dim, text),
            OutputPriority::Required,
        );
    }
}
