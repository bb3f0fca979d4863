//! Lines that a start says before anything is shown: which model was chosen, and which file was not read.

use allstop_terminal::{OutputPriority, OutputQueue, Style, TextRole};

use crate::host::ProcessHost;

/// Standard error of a start. It may be used on the thread that reads the configuration.
#[derive(Debug, Clone)]
pub(crate) struct StartVoice {
    stderr: OutputQueue,
    style: Style,
}

impl StartVoice {
    pub(crate) fn new(host: &ProcessHost) -> Self {
        let stderr = host.output.stderr().clone();
        let style = host.terminal.style(stderr.is_terminal());
        Self { stderr, style }
    }

    /// Says a line.
    pub(crate) fn note(&self, text: &str) {
        self.stderr
            .lines(self.style.paint(TextRole::Dim, text), OutputPriority::Must);
    }
}
