//! What a run says of servers of tools: that one is not available, and that it is there again.

use std::convert::Infallible;

use allstop_tools::mcp::{McpChange, McpNews};

use crate::display::{JsonStream, Keep, Lane, Role, Style};

/// Says it, while something else holds what the run shows.
pub(super) struct Servers {
    pub(super) stderr: Lane,
    pub(super) style: Style,
    /// To a program that reads events.
    pub(super) stream: Option<JsonStream>,
}

impl Servers {
    /// Says what there is to say, for as long as it is polled.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[expect(clippy::infinite_loop, reason = "it is dropped when the run has ended")]
    pub(super) async fn tell(self, mut news: McpNews) -> Infallible {
        loop {
            self.say(&news.next().await);
        }
    }

    fn say(&self, change: &McpChange) {
        let streamed = self
            .stream
            .as_ref()
            .is_some_and(|stream| stream.server(change));
        if streamed && !self.stderr.is_terminal() {
            return;
        }
        let line = self.style.paint(Role::Dim, change.to_string());
        self.stderr.lines(line, Keep::Must);
    }
}
