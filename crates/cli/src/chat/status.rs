//! Status at the bottom of a chat: permission mode, model, tokens, share of the context window, cost, time and folder.

use std::time::Instant;

use allstop_core::record::{SessionRecord, StartedCallKind};
use allstop_core::{CallId, Usage};
use allstop_runtime::{PriceConfig, System};
use allstop_session::FollowUp;
use allstop_terminal::{StatusItem, StatusLine, Style, Styled};
use allstop_tools::permission::{ModeSwitch, PermissionMode};

use crate::host::ProcessHost;

/// Minimum number of tokens that is shown in thousands.
const THOUSANDS_FROM: u64 = 10_000;

/// Facts for the status.
#[derive(Debug)]
pub(super) struct ChatStatus {
    style: Style,
    model: String,
    folder: String,
    mode: ModeSwitch,
    /// Flag that answers all permission questions: `--yes` or `--deny`.
    answers: Option<&'static str>,
    /// Maximum tokens that the model can read at once, if configured.
    context_window: Option<u64>,
    price: Option<PriceConfig>,
    /// Token usage of this chat.
    usage: Usage,
    /// Last model call that was started.
    model_call: Option<CallId>,
    /// Tokens of the conversation, as counted by the last model call.
    context: Option<u64>,
    /// Start of the running turn.
    turn_since: Option<Instant>,
}

impl ChatStatus {
    pub(super) fn new(
        system: &System,
        mode: ModeSwitch,
        answers: Option<&'static str>,
        style: Style,
    ) -> Self {
        let model = &system.config().model;
        let folder = system.folder().to_string_lossy();
        Self {
            style,
            model: system.model_name().to_owned(),
            folder: ProcessHost::below_home(&folder),
            mode,
            answers,
            context_window: model.context_window,
            price: model.price.clone(),
            usage: Usage::default(),
            model_call: None,
            context: None,
            turn_since: None,
        }
    }

    /// The working folder, as people write it.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    /// Switches to this permission mode; `None` switches to the next mode.
    pub(super) fn switch(&self, to: Option<PermissionMode>) {
        let mode = to.unwrap_or_else(|| self.mode.get().next());
        self.mode.set(mode);
    }

    /// Describes the mode: the calls that run without a question, and the treatment of all other calls.
    pub(super) fn describe_mode(&self) -> String {
        let mode = self.mode.get();
        let others = match self.answers {
            Some("--yes") => "all others also run, because of --yes",
            Some(_) => "all others are denied, because of --deny",
            None => "all others ask",
        };
        let runs = match mode {
            PermissionMode::Plan => {
                return format!("mode {mode}: reads run; all others are denied");
            }
            PermissionMode::Ask => "reads run",
            PermissionMode::AcceptEdits => "reads and file changes in the working directory run",
        };
        format!("mode {mode}: {runs}; {others}")
    }

    /// Updates the status from a record of the session.
    pub(super) fn record(&mut self, record: &SessionRecord, now: Instant) {
        match record {
            SessionRecord::TurnStarted { .. } => self.turn_since = Some(now),
            SessionRecord::TurnCommitted { .. } | SessionRecord::TurnStopped { .. } => {
                self.turn_since = None;
            }
            SessionRecord::CallStarted { call, .. } => {
                if let StartedCallKind::Model { .. } = call.kind {
                    self.model_call = Some(call.id.clone());
                }
            }
            SessionRecord::CallFinished {
                id,
                usage: Some(usage),
                ..
            } => {
                self.usage += *usage;
                if self.model_call.as_ref() == Some(id) {
                    self.context = Some(usage.total_tokens());
                }
            }
            _ => {}
        }
    }

    /// Builds the status line. While a turn runs, the line names the effects of Enter and Escape. If the line is too
    /// long, it omits items in this order: the folder, the cost, the share of the context window, the tokens, the model.
    pub(super) fn line(&self, follow_up: FollowUp) -> StatusLine {
        let item = |rank: u8, text: String| StatusItem {
            text: Styled::text(&text),
            rank,
            since: None,
        };
        let answers = self
            .answers
            .map_or(String::new(), |flag| format!(" {flag}"));
        let mut items = vec![item(0, format!("{}{answers} (Shift-Tab)", self.mode.get()))];
        if self.turn_since.is_some() {
            items.push(item(1, keys_of_a_turn(follow_up).to_owned()));
        }
        items.push(item(2, self.model.clone()));
        if self.usage.total_tokens() > 0 {
            let sign = if self.usage.estimated { "~" } else { "" };
            let (input, output) = (self.usage.input_tokens, self.usage.output_tokens);
            let (input, output) = (short_count(input), short_count(output));
            items.push(item(3, format!("{sign}{input} in, {output} out")));
        }
        if let (Some(tokens), Some(window)) = (self.context, self.context_window) {
            let share = tokens.saturating_mul(100) / window.max(1);
            items.push(item(4, format!("{share} % of the context")));
        }
        if let Some(price) = &self.price {
            let sign = if self.usage.estimated { "~" } else { "" };
            items.push(item(5, format!("{sign}{}", price.of(self.usage))));
        }
        items.extend(self.turn_since.map(|since| StatusItem {
            text: Styled::default(),
            rank: 1,
            since: Some(since),
        }));
        items.push(item(6, self.folder.clone()));
        StatusLine {
            items,
            style: self.style,
        }
    }
}

/// Effects of the keys Enter and Escape while a turn runs.
fn keys_of_a_turn(follow_up: FollowUp) -> &'static str {
    match follow_up {
        FollowUp::Steer => "Enter adds to the turn, Esc stops it",
        FollowUp::Enqueue => "Enter sends after the turn, Esc stops it",
        FollowUp::Interrupt => "Enter stops the turn and sends, Esc stops it",
        FollowUp::Replace => "Enter discards the turn and sends, Esc stops it",
        FollowUp::Reject => "Esc stops the turn",
    }
}

fn short_count(tokens: u64) -> String {
    if tokens < THOUSANDS_FROM {
        tokens.to_string()
    } else {
        format!("{} k", (tokens + 500) / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> ChatStatus {
        ChatStatus {
            style: Style::new(false, true),
            model: "gpt-5-mini".to_owned(),
            folder: "~/work".to_owned(),
            mode: ModeSwitch::default(),
            answers: None,
            context_window: Some(200_000),
            price: Some(PriceConfig {
                input: 2.0,
                output: 8.0,
                currency: "$".to_owned(),
            }),
            usage: Usage {
                input_tokens: 123_456,
                output_tokens: 1_000,
                estimated: false,
            },
            model_call: None,
            context: Some(50_000),
            turn_since: None,
        }
    }

    #[test]
    fn facts_are_shown_and_the_mode_stays_where_there_is_no_room() {
        let status = status();
        let shown = |columns| status.line(FollowUp::Steer).shown(columns);
        assert_eq!(
            shown(120),
            "ask (Shift-Tab) · gpt-5-mini · 123 k in, 1000 out · 25 % of the context · $0.25 · ~/work"
        );
        assert_eq!(shown(38), "ask (Shift-Tab) · gpt-5-mini");
        status.switch(None);
        assert!(shown(38).starts_with("accept-edits"));
    }

    #[test]
    fn keys_are_named_while_a_turn_runs() {
        let status = ChatStatus {
            turn_since: Some(Instant::now()),
            ..status()
        };
        let shown = |policy| status.line(policy).shown(64);
        assert!(shown(FollowUp::Steer).contains("· Enter adds to the turn, Esc stops it"));
        assert!(shown(FollowUp::Interrupt).contains("· Enter stops the turn and sends, Esc stops"));
    }

    /// Regression: the status claimed that the other calls ask the user. In fact, the flag answered every question.
    #[test]
    fn a_flag_that_answers_all_questions_is_named() {
        let status = ChatStatus {
            answers: Some("--yes"),
            ..status()
        };
        let shown = status.line(FollowUp::Steer).shown(80);
        assert!(shown.starts_with("ask --yes (Shift-Tab)"), "{shown}");
        let said = status.describe_mode();
        assert!(said.ends_with("also run, because of --yes"), "{said}");
        status.switch(Some(PermissionMode::Plan));
        assert!(status.describe_mode().ends_with("all others are denied"));
    }

    #[test]
    fn only_what_is_known_is_shown() {
        let status = ChatStatus {
            context_window: None,
            price: None,
            usage: Usage::default(),
            ..status()
        };
        assert_eq!(
            status.line(FollowUp::Steer).shown(80),
            "ask (Shift-Tab) · gpt-5-mini · ~/work"
        );
    }
}
