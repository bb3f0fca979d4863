//! What a chat shows above the line that is typed into.

use allstop_agent::AgentEvent;
use allstop_core::{CauseKind, Receipt, StopReason};
use allstop_session::MessageOutcome;

use crate::display::{
    Entry, Keep, Lane, Live, LiveOptions, RECEIPT_WIDTH_DEFAULT, Role, Style, Watcher as _, escape,
    plain, render_receipt,
};
use crate::host::Host;

/// What a chat shows.
#[derive(Debug)]
pub(super) struct Screen {
    live: Live,
    lane: Lane,
    style: Style,
    /// Somebody types below: the answers are theirs to read, and what they typed is shown above each.
    types: bool,
}

impl Screen {
    /// Over the output of the process. With `terminal` somebody types there.
    pub(super) fn new(host: &Host, terminal: Option<&Lane>) -> Self {
        let lane = terminal.unwrap_or(host.output.stderr()).clone();
        let options = LiveOptions {
            environment: host.terminal.clone(),
            answers: true,
        };
        Self {
            live: Live::new(&host.output, &options),
            style: host.terminal.style(lane.is_terminal()),
            lane,
            types: terminal.is_some(),
        }
    }

    /// How to draw.
    pub(super) fn style(&self) -> Style {
        self.style
    }

    /// Whether somebody types below.
    pub(super) fn is_typed_into(&self) -> bool {
        self.types
    }

    /// A line that only somebody who sits there has a use for.
    pub(super) fn hint(&self, text: &str) {
        if self.types {
            self.note(text);
        }
    }

    /// The line that is typed into; `None` takes it away.
    pub(super) fn entry(&self, entry: Option<Entry>) {
        if self.types {
            self.lane.show_entry(entry);
        }
    }

    /// A message, above its answer.
    pub(super) fn message(&self, text: &str) {
        self.said(text, Role::Strong, "");
    }

    /// A message that goes into the running turn.
    pub(super) fn steered(&self, text: &str) {
        self.said(text, Role::Strong, "  (to the running turn)");
    }

    /// A message that no turn has begun for.
    pub(super) fn unanswered(&self, text: &str) {
        self.said(text, Role::Dim, "  (no turn began for it)");
    }

    /// A command that was typed.
    pub(super) fn command(&self, text: &str) {
        self.said(text.trim(), Role::Dim, "");
    }

    fn said(&self, text: &str, role: Role, about: &str) {
        if !self.types {
            return;
        }
        let sign = self.style.pick("›", ">");
        let shown = escape::text(text).replace('\n', "\n  ");
        let line = format!("{sign} {shown}");
        let about = self.style.paint(Role::Dim, about);
        self.lines(&format!("{}{about}", self.style.paint(role, &line)));
    }

    /// A line for people, beside everything else.
    pub(super) fn note(&self, text: &str) {
        let lines = escape::text(text);
        self.lines(&self.style.paint(Role::Dim, &lines));
    }

    /// What did not work.
    pub(super) fn error(&self, text: &str, hint: Option<&str>) {
        let mut lines = format!(
            "{} {}",
            self.style.paint(Role::Bad, "error:"),
            escape::text(text)
        );
        for hint in hint.iter().flat_map(|hint| hint.lines()) {
            lines.push('\n');
            lines.push_str(&self.style.paint(Role::Dim, "hint: "));
            lines.push_str(hint);
        }
        self.lines(&lines);
    }

    /// A text of several lines, such as an output or the help.
    pub(super) fn text(&self, text: &str) {
        self.lines(&escape::text(text));
    }

    /// A question about a call; its answer is typed below. `asker`: the sub-agent that it is for.
    pub(super) fn question(&self, text: &str, call: &str, asker: Option<&str>) {
        let asks = self.style.paint(Role::Warning, "? Allow");
        let text = self.style.paint(Role::Strong, &escape::line(text));
        let call = format!("({})", escape::line(call));
        let call = self.style.paint(Role::Dim, &call);
        let asker = asker.map_or(String::new(), |asker| {
            let said = format!("\n  asked by {}", escape::line(asker));
            self.style.paint(Role::Dim, &said)
        });
        self.lines(&format!("{asks} {text} {call}{asker}"));
    }

    fn lines(&self, lines: &str) {
        self.lane.lines(lines, Keep::Must);
    }

    /// What the running turn does.
    pub(super) fn agent(&mut self, event: &AgentEvent) {
        self.live.event(event);
    }

    /// So many events were missed.
    pub(super) fn missed(&mut self, count: u64) {
        self.live.missed(count);
    }

    /// Nothing more comes of a turn.
    pub(super) fn end_turn(&mut self, answer: Option<&str>) {
        self.live.end(answer);
    }

    /// What a message came to, but for its receipt.
    pub(super) fn outcome(&mut self, outcome: &MessageOutcome) {
        if let Some(error) = &outcome.error {
            self.error(&error.to_string(), error.hint.as_deref());
        } else if outcome.stop_reason != StopReason::Completed {
            let reason = plain(outcome.stop_reason.as_str());
            let why = match &outcome.cause {
                Some(cause) if cause.kind == CauseKind::Superseded => {
                    ": a newer message took its place".to_owned()
                }
                Some(cause) => format!(": {cause}"),
                None => String::new(),
            };
            self.lines(&format!(
                "{}{}",
                self.style.paint(Role::Warning, &reason),
                escape::line(&why)
            ));
        }
        for denial in &outcome.denials {
            let denied = self.style.paint(Role::Warning, "denied:");
            self.lines(&format!(
                "{denied} {}: {}",
                denial.tool,
                escape::line(&plain(&denial.reason))
            ));
        }
    }

    /// A receipt.
    pub(super) fn receipt(&self, receipt: &Receipt) {
        let width = self.lane.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
        self.lane
            .lines(render_receipt(receipt, self.style, width), Keep::Last);
    }
}

/// A failure's own receipt says nothing new where nothing ran beside it.
pub(super) fn is_worth_showing(receipt: &Receipt) -> bool {
    !receipt.items().is_empty() || receipt.cause().kind != CauseKind::Failure
}
