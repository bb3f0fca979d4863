//! Status at the bottom of a chat: permission mode, model, tokens, share of the context window, cost, background work,
//! time and folder; and the answer to `/status`.

use std::time::Instant;

use allstop_core::counted::{counted, grouped};
use allstop_core::record::{SessionRecord, StartedCallKind};
use allstop_core::{CallId, Usage};
use allstop_runtime::{SessionCost, System};
use allstop_session::FollowUp;
use allstop_terminal::{StatusItem, StatusLine, Style, Styled};
use allstop_tools::permission::{ModeSwitch, PermissionMode};

use super::state::ChatActivity;
use crate::display::{describe_cost, describe_usage};
use crate::host::ProcessHost;

/// Ranks of the items of the status line. The item with the highest rank is shortened or omitted first.
mod rank {
    pub(super) const MODE: u8 = 0;
    pub(super) const TURN: u8 = 10;
    /// Short form of the keys during a turn.
    pub(super) const SHORT_KEYS: u8 = 15;
    /// Short form of the mode during a turn: the key is more important than the model.
    pub(super) const SHORT_MODE: u8 = 18;
    pub(super) const MODEL: u8 = 20;
    pub(super) const CONTEXT: u8 = 30;
    pub(super) const COST: u8 = 40;
    pub(super) const BACKGROUND: u8 = 41;
    /// Short forms of all other items.
    pub(super) const SHORT: u8 = 50;
    pub(super) const TOKENS: u8 = 60;
    pub(super) const FOLDER: u8 = 70;
}

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
    /// Maximum tokens that the model can read at once, if known.
    context_window: Option<u64>,
    /// Usage and cost of the session. `None` if its earlier usage could not be read.
    cost: Option<SessionCost>,
    /// Number of running pieces of background work.
    background: usize,
    /// Last model call that was started.
    model_call: Option<CallId>,
    /// Tokens of the conversation, as counted by the last model call.
    context: Option<u64>,
    /// True if the usage of the running model call includes a summary, so that it does not count the conversation.
    includes_summary: bool,
    /// Start of the running turn.
    turn_since: Option<Instant>,
    /// Start of the running `/compact`.
    compacts_since: Option<Instant>,
}

impl ChatStatus {
    pub(super) fn new(
        system: &System,
        cost: Option<SessionCost>,
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
            context_window: model.context_window(),
            cost,
            background: 0,
            model_call: None,
            context: None,
            includes_summary: false,
            turn_since: None,
            compacts_since: None,
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
        if let Some(cost) = &mut self.cost {
            cost.add(record);
        }
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
            } if self.model_call.as_ref() == Some(id) => {
                let counts = !std::mem::take(&mut self.includes_summary);
                self.context = counts.then_some(usage.total_tokens());
            }
            SessionRecord::Compacted { .. } | SessionRecord::TurnUndone { .. } => {
                (self.context, self.includes_summary) = (None, false);
            }
            _ => {}
        }
    }

    /// Records that a summary is being made, whose usage the next record includes.
    pub(super) fn summary_started(&mut self) {
        self.includes_summary = true;
    }

    /// Sets the start of the running `/compact`; `None` after its end.
    pub(super) fn compacts(&mut self, since: Option<Instant>) {
        self.compacts_since = since;
    }

    /// Sets the number of running pieces of background work.
    pub(super) fn set_background(&mut self, running: usize) {
        self.background = running;
    }

    /// Builds the status line. While a turn, `/compact` or a stop runs, the line names the effects of the keys. If the
    /// line is too long, the items become short or are omitted in the order of their ranks.
    pub(super) fn line(&self, follow_up: FollowUp, activity: ChatActivity) -> StatusLine {
        let item = |rank: u8, text: String, short: Option<(u8, String)>| StatusItem {
            text: Styled::text(&text),
            rank,
            short: short.map(|(rank, text)| (rank, Styled::text(&text))),
            since: None,
        };
        let answers = self
            .answers
            .map_or(String::new(), |flag| format!(" {flag}"));
        let mode = format!("{}{answers}", self.mode.get());
        let keyed = format!("{mode} (Shift-Tab)");
        let since = self.turn_since.or(self.compacts_since);
        let keys = match activity {
            // While a question is open, the keys answer it.
            ChatActivity::Asks => None,
            ChatActivity::Stops => Some(["stopping, Ctrl-C uses force", "Ctrl-C forces"]),
            ChatActivity::Compacts => Some(["summarising older turns, Esc stops it", "Esc stops"]),
            // The record of the beginning of a turn comes later than its message.
            ChatActivity::Runs => Some(keys_of_a_turn(follow_up)),
            ChatActivity::Idle => self.turn_since.map(|_| keys_of_a_turn(follow_up)),
        };
        let short = if since.is_some() || keys.is_some() {
            rank::SHORT_MODE
        } else {
            rank::SHORT
        };
        let mut items = vec![item(rank::MODE, keyed, Some((short, mode)))];
        if let Some([long, short]) = keys.map(|keys| keys.map(str::to_owned)) {
            items.push(item(rank::TURN, long, Some((rank::SHORT_KEYS, short))));
        }
        items.push(item(rank::MODEL, self.model.clone(), None));
        let usage = self.usage();
        if usage.total_tokens() > 0 {
            let sign = if usage.estimated { "~" } else { "" };
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            let (input, output) = (short_count(input), short_count(output));
            let text = format!("{sign}{input} in, {output} out");
            items.push(item(rank::TOKENS, text, None));
        }
        if let Some(share) = self.context_share() {
            let text = format!("{share} % of the context");
            let short = (rank::SHORT, format!("{share} %"));
            items.push(item(rank::CONTEXT, text, Some(short)));
        }
        if let Some(cost) = self.cost.as_ref().and_then(SessionCost::total) {
            items.push(item(rank::COST, describe_cost(Some(&cost), usage), None));
        }
        if self.background > 0 {
            let text = format!("{} in the background", self.background);
            let short = (rank::SHORT, format!("{} bg", self.background));
            items.push(item(rank::BACKGROUND, text, Some(short)));
        }
        items.extend(since.map(|since| StatusItem {
            text: Styled::default(),
            rank: rank::TURN,
            short: None,
            since: Some(since),
        }));
        items.push(item(rank::FOLDER, self.folder.clone(), None));
        StatusLine {
            items,
            style: self.style,
        }
    }

    /// Use of the context window.
    pub(super) fn context_use(&self) -> ContextUse {
        ContextUse {
            tokens: self.context,
            window: self.context_window,
        }
    }

    /// Usage and cost in one line.
    pub(super) fn describe_usage(&self) -> String {
        match &self.cost {
            Some(cost) if cost.models().is_empty() => "no tokens yet".to_owned(),
            Some(cost) => {
                let usage = cost.usage();
                let total = cost.total();
                let total = describe_cost(total.as_ref(), usage);
                format!("{}, {total}", describe_usage(usage))
            }
            None => "unknown: the log could not be read".to_owned(),
        }
    }

    fn usage(&self) -> Usage {
        self.cost
            .as_ref()
            .map_or(Usage::default(), SessionCost::usage)
    }

    fn context_share(&self) -> Option<u64> {
        Some(share(self.context?, self.context_window?))
    }
}

/// Use of the context window.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextUse {
    /// Tokens of the conversation, as counted by the last model call.
    tokens: Option<u64>,
    window: Option<u64>,
}

impl ContextUse {
    /// Describes the use. If no model call has counted the conversation, it has about `estimated` tokens.
    pub(super) fn describe(self, estimated: u64) -> String {
        let about = if self.tokens.is_none() { "about " } else { "" };
        let tokens = self.tokens.unwrap_or(estimated);
        let (used, shown) = (share(tokens, self.window.unwrap_or(0)), grouped(tokens));
        match self.window {
            Some(window) => {
                let window = counted(window, "token", "tokens");
                format!("{about}{shown} of {window}, {used} %")
            }
            None => format!(
                "{about}{}; context window unknown: set `context_window` in `[model]` of the configuration",
                counted(tokens, "token", "tokens")
            ),
        }
    }
}

/// Share of the window in percent.
fn share(tokens: u64, window: u64) -> u64 {
    tokens.saturating_mul(100) / window.max(1)
}

/// Effects of the keys Enter and Escape while a turn runs, in a long and in a short form.
fn keys_of_a_turn(follow_up: FollowUp) -> [&'static str; 2] {
    match follow_up {
        FollowUp::Steer => [
            "Enter adds to the turn, Esc stops it",
            "Enter adds, Esc stops",
        ],
        FollowUp::Enqueue => [
            "Enter sends after the turn, Esc stops it",
            "Enter queues, Esc stops",
        ],
        FollowUp::Interrupt => [
            "Enter stops the turn and sends, Esc stops it",
            "Enter interrupts, Esc stops",
        ],
        FollowUp::Replace => [
            "Enter discards the turn and sends, Esc stops it",
            "Enter replaces, Esc stops",
        ],
        FollowUp::Reject => ["Esc stops the turn", "Esc stops"],
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
    use allstop_core::record::CallOutcome;
    use allstop_core::record::StartedCall;
    use allstop_core::{Timestamp, TurnNumber};
    use allstop_runtime::ModelPrices;

    use super::*;

    fn records(usage: Usage) -> [SessionRecord; 2] {
        [
            SessionRecord::CallStarted {
                turn: TurnNumber(1),
                call: StartedCall {
                    id: "step_1".into(),
                    name: "gpt-5-mini".into(),
                    kind: StartedCallKind::Model { reserved_tokens: 0 },
                },
                at: Timestamp::from_unix_ms(0),
            },
            SessionRecord::CallFinished {
                turn: TurnNumber(1),
                id: "step_1".into(),
                outcome: CallOutcome::Succeeded,
                usage: Some(usage),
                finish: None,
                exit_code: None,
                result: None,
            },
        ]
    }

    fn empty() -> ChatStatus {
        ChatStatus {
            style: Style::new(false, true),
            model: "gpt-5-mini".to_owned(),
            folder: "~/work".to_owned(),
            mode: ModeSwitch::default(),
            answers: None,
            context_window: Some(200_000),
            cost: Some(SessionCost::new(ModelPrices::default())),
            background: 0,
            model_call: None,
            context: None,
            includes_summary: false,
            turn_since: None,
            compacts_since: None,
        }
    }

    fn status() -> ChatStatus {
        let mut status = empty();
        let usage = Usage {
            input_tokens: 123_456,
            output_tokens: 1_000,
            ..Usage::default()
        };
        for record in records(usage) {
            status.record(&record, Instant::now());
        }
        status.context = Some(50_000);
        status
    }

    #[test]
    fn facts_are_shown_and_the_mode_stays_where_there_is_no_room() {
        let mut status = status();
        let shown = |status: &ChatStatus, columns| {
            status
                .line(FollowUp::Steer, ChatActivity::Idle)
                .shown(columns)
        };
        assert_eq!(
            shown(&status, 120),
            "ask (Shift-Tab) · gpt-5-mini · 123 k in, 1000 out · 25 % of the context · $0.0329 · ~/work"
        );
        status.set_background(2);
        assert_eq!(
            shown(&status, 90),
            "ask (Shift-Tab) · gpt-5-mini · 25 % of the context · $0.0329 · 2 in the background"
        );
        assert_eq!(
            shown(&status, 41),
            "ask · gpt-5-mini · 25 % · $0.0329 · 2 bg"
        );
        assert_eq!(shown(&status, 38), "ask · gpt-5-mini · 25 % · $0.0329");
        assert_eq!(shown(&status, 20), "ask · gpt-5-mini");
        status.switch(None);
        assert!(shown(&status, 38).starts_with("accept-edits"));
    }

    #[test]
    fn keys_are_named_while_a_turn_runs() {
        let status = ChatStatus {
            turn_since: Some(Instant::now()),
            ..status()
        };
        let shown = |policy, columns| status.line(policy, ChatActivity::Runs).shown(columns);
        assert!(shown(FollowUp::Steer, 64).contains("· Enter adds to the turn, Esc stops it"));
        assert!(
            shown(FollowUp::Interrupt, 64).contains("· Enter stops the turn and sends, Esc stops")
        );
        assert_eq!(
            shown(FollowUp::Steer, 40),
            "ask · Enter adds, Esc stops · 0 s"
        );
        let sent = self::status();
        let sent = sent.line(FollowUp::Steer, ChatActivity::Runs).shown(64);
        assert!(sent.contains("Esc stops"), "{sent}");
    }

    /// Regression: during a stop, the status named keys that had no such effect any more.
    #[test]
    fn keys_of_a_stop_and_of_a_compaction_are_named() {
        let mut status = ChatStatus {
            turn_since: Some(Instant::now()),
            ..status()
        };
        let shown =
            |status: &ChatStatus, activity| status.line(FollowUp::Steer, activity).shown(64);
        let stops = shown(&status, ChatActivity::Stops);
        assert!(
            stops.contains("stopping, Ctrl-C uses force") && !stops.contains("Enter"),
            "{stops}"
        );
        status.turn_since = None;
        status.compacts(Some(Instant::now()));
        let compacts = shown(&status, ChatActivity::Compacts);
        assert!(
            compacts.contains("summarising older turns, Esc stops it") && compacts.contains("0 s"),
            "{compacts}"
        );
    }

    /// Regression: the status claimed that the other calls ask the user. In fact, the flag answered every question.
    #[test]
    fn a_flag_that_answers_all_questions_is_named() {
        let status = ChatStatus {
            answers: Some("--yes"),
            ..status()
        };
        let shown = status.line(FollowUp::Steer, ChatActivity::Runs).shown(120);
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
            ..empty()
        };
        assert_eq!(
            status.line(FollowUp::Steer, ChatActivity::Idle).shown(80),
            "ask (Shift-Tab) · gpt-5-mini · ~/work"
        );
        assert!(
            status
                .context_use()
                .describe(10)
                .contains("context window unknown")
        );
    }

    /// The usage of a call that includes a summary does not count the conversation.
    #[test]
    fn summary_does_not_count_as_context() {
        let mut status = status();
        status.summary_started();
        for record in records(Usage::default()) {
            status.record(&record, Instant::now());
        }
        assert_eq!(status.context_share(), None);
        assert_eq!(
            status.context_use().describe(4_000),
            "about 4,000 of 200,000 tokens, 2 %"
        );
    }
}
