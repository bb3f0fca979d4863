//! Lines that the start of a command prints before other output, such as the chosen model and ignored files.

use allstop_terminal::{OutputPriority, OutputQueue, Style, TextRole};

use crate::host::ProcessHost;

/// Standard error during the start. The thread that reads the configuration can use it, too.
#[derive(Debug, Clone)]
pub(crate) struct StartReporter {
    stderr: OutputQueue,
    style: Style,
}

impl StartReporter {
    pub(crate) fn new(host: &ProcessHost) -> Self {
        let stderr = host.output.stderr().clone();
        let style = host.terminal.style(stderr.is_terminal());
        Self { stderr, style }
    }

    /// Prints a line.
    pub(crate) fn note(&self, text: &str) {
        self.stderr.lines(
            self.style.paint(TextRole::Dim, text),
            OutputPriority::Required,
        );
    }
}
