//! Running tool calls and model calls. On a terminal, each running call has a live line: a row below the output, which
//! is redrawn until the call ends. A finished tool call leaves a short permanent line.

use std::borrow::Cow;
use std::time::Instant;

use allstop_core::message::Arguments;
use allstop_core::receipt::ItemState;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, describe_call};
use allstop_terminal::{
    OutputPriority, OutputQueue, OutputTail, RunningClock, RunningLine, RunningProgress, Style,
    Styled, Symbol, TextRole, styled,
};
use allstop_tools::{CallProgress, DiffLine, FileChange};

use super::super::change::{change_counts, change_lines};
use super::super::labels;

/// Assumed width of a call's row, in columns, if the output is not a terminal.
const COLUMNS_DEFAULT: usize = 100;
/// Maximum columns of the first line of an error, which is shown below the row of the failed call.
const ERROR_COLUMNS: usize = 120;
/// Minimum width, in columns, of a call's label if the label shares a row with other text. This width is enough to
/// recognise the call. If less space is left, the other text moves below the label.
const LABEL_COLUMNS_MIN: usize = 16;

/// Form in which calls are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    /// No lines, because of `--quiet`.
    Hidden,
    /// A line at the start and a line at the end of each call.
    Lines,
    /// A live line, which the terminal redraws, and a line at the end of each call.
    Live,
}

#[derive(Debug)]
pub(super) struct CallLines {
    queue: OutputQueue,
    style: Style,
    form: CallForm,
    model: Option<ModelLine>,
    known: Vec<CallLine>,
    /// Time at which the current stop of the turn begins to use force (kills processes); `None` if no stop runs.
    force_at: Option<Instant>,
}

/// The running model call. Its live line is shown until the text of the answer begins.
#[derive(Debug)]
struct ModelLine {
    label: Styled,
    since: Instant,
    shown: bool,
    thinks: bool,
}

#[derive(Debug)]
struct CallLine {
    id: CallId,
    label: Styled,
    since: Option<Instant>,
    output: OutputTail,
    progress: Option<RunningProgress>,
    /// Lines of the diff that a permission question has already shown; `None` without such a question.
    asked: Option<Vec<DiffLine>>,
}

impl CallLine {
    fn new(id: &CallId, label: Styled, since: Option<Instant>) -> Self {
        Self {
            id: id.clone(),
            label,
            since,
            output: OutputTail::default(),
            progress: None,
            asked: None,
        }
    }
}

/// Result of a finished call.
pub(super) struct CallEnd<'a> {
    pub(super) outcome: CallOutcome,
    pub(super) after_ms: u64,
    pub(super) content: &'a str,
    pub(super) exit_code: Option<i32>,
    pub(super) change: Option<&'a FileChange>,
    pub(super) left: Option<&'a ItemState>,
}

impl CallEnd<'_> {
    fn label(&self) -> (Symbol, TextRole, Cow<'_, str>) {
        if let Some(left) = self.left {
            return left_words(left);
        }
        let (symbol, role, word) = match self.outcome {
            CallOutcome::Succeeded => return self.answered(),
            CallOutcome::Failed => (Symbol::Bad, TextRole::Bad, "failed"),
            CallOutcome::Denied => (Symbol::Denied, TextRole::Warning, "denied"),
            CallOutcome::Stopped => (Symbol::Stopped, TextRole::Warning, "stopped"),
            CallOutcome::TimedOut => (Symbol::Stopped, TextRole::Bad, "timed out"),
            CallOutcome::Unknown => (Symbol::Unknown, TextRole::Alarm, MAY_HAVE_COMPLETED),
        };
        (symbol, role, word.into())
    }

    /// Label for a call whose tool returned a result. The command of the call may nevertheless have failed, or may
    /// continue in the background.
    fn answered(&self) -> (Symbol, TextRole, Cow<'_, str>) {
        let last = self.content.lines().next_back().unwrap_or_default();
        let exit = last
            .strip_prefix('[')
            .and_then(|last| last.strip_suffix(']'));
        let is_end = |exit: &&str| exit.starts_with("killed by ") || *exit == "exit code unknown";
        if let Some(exit) = exit.filter(is_end) {
            return (Symbol::Bad, TextRole::Warning, exit.into());
        }
        if let Some(code) = self.exit_code.filter(|code| *code != 0) {
            return (
                Symbol::Bad,
                TextRole::Warning,
                format!("exit code {code}").into(),
            );
        }
        let (goes_on, _) = self.content.split_once(';').unwrap_or((self.content, ""));
        if goes_on.starts_with("bg_") && goes_on.ends_with(" runs in the background") {
            return (Symbol::Running, TextRole::Good, goes_on.into());
        }
        (Symbol::Good, TextRole::Good, "".into())
    }
}

const MAY_HAVE_COMPLETED: &str = "may have completed; check before repeating";

/// Describes the state that the receipt of a stop (the report of the stopped work) contains for a call.
fn left_words(state: &ItemState) -> (Symbol, TextRole, Cow<'static, str>) {
    let (symbol, role, word) = match state {
        ItemState::Finished { .. } => (Symbol::Good, TextRole::Good, "finished"),
        ItemState::Stopped { .. } => (Symbol::Stopped, TextRole::Warning, "stopped"),
        ItemState::Unknown { .. } => (Symbol::Unknown, TextRole::Alarm, MAY_HAVE_COMPLETED),
        ItemState::StillRunning { .. } => (Symbol::Unknown, TextRole::Alarm, "still running"),
        ItemState::Unreachable { .. } => (
            Symbol::Unknown,
            TextRole::Alarm,
            "not reached; may still run",
        ),
        ItemState::Refused { .. } => (
            Symbol::Unknown,
            TextRole::Alarm,
            "refused to stop; still running",
        ),
    };
    (symbol, role, word.into())
}

impl CallLines {
    pub(super) fn new(queue: OutputQueue, style: Style, form: CallForm) -> Self {
        Self {
            queue,
            style,
            form,
            model: None,
            known: Vec::new(),
            force_at: None,
        }
    }

    /// True if no calls are shown.
    pub(super) fn is_hidden(&self) -> bool {
        self.form == CallForm::Hidden
    }

    /// Shows no calls.
    pub(super) fn hide(&mut self) {
        self.form = CallForm::Hidden;
    }

    /// Shows that a stop has begun. At the time `force_at`, the stop begins to use force. `None` means that the stop
    /// has ended: its receipt has arrived.
    pub(super) fn stopping(&mut self, force_at: Option<Instant>) {
        self.force_at = force_at;
        self.show();
    }

    /// Shows output of a running call.
    pub(super) fn output(&mut self, id: &CallId, text: &str) {
        if let Some(call) = self.known.iter_mut().find(|call| call.id == *id) {
            call.output.push(text);
            self.show();
        }
    }

    /// Shows the progress of a running call.
    pub(super) fn progress(&mut self, id: &CallId, progress: &CallProgress) {
        if let Some(call) = self.known.iter_mut().find(|call| call.id == *id) {
            call.progress = Some(running_progress(progress));
            self.show();
        }
    }

    pub(super) fn model_started(&mut self, step: u32, name: &str, since: Instant) {
        self.model = Some(ModelLine {
            label: styled![format_args!("step {step}: {name}")],
            since,
            shown: true,
            thinks: false,
        });
        self.show();
    }

    /// Hides the live line of the model call, because the text of the answer is visible from now on.
    pub(super) fn model_speaks(&mut self) {
        if let Some(model) = self.model.as_mut().filter(|model| model.shown) {
            model.shown = false;
            self.show();
        }
    }

    pub(super) fn model_thinks(&mut self) {
        if let Some(model) = self.model.as_mut().filter(|model| !model.thinks) {
            model.thinks = true;
            model.label.push(" (thinks)");
            self.show();
        }
    }

    /// Shows the live line of the model call again, because the call failed and will be retried.
    pub(super) fn model_waits(&mut self) {
        if let Some(model) = &mut self.model {
            model.shown = true;
        }
        self.show();
    }

    pub(super) fn model_ended(&mut self) {
        self.model = None;
        self.show();
    }

    pub(super) fn requested(&mut self, id: &CallId, name: &str, arguments: &Arguments) {
        self.known.retain(|call| call.id != *id);
        let label = styled![describe_call(name, arguments)];
        self.known.push(CallLine::new(id, label, None));
    }

    /// Remembers the change that a permission question about this call has shown.
    pub(super) fn asked(&mut self, id: &CallId, change: &FileChange) {
        if let Some(call) = self.known.iter_mut().find(|call| call.id == *id) {
            call.asked = Some(change.lines.clone());
        }
    }

    pub(super) fn started(&mut self, id: &CallId, name: &str, since: Instant) {
        let known = self.known.iter_mut().find(|call| call.id == *id);
        let label = if let Some(call) = known {
            call.since = Some(since);
            call.label.clone()
        } else {
            // The call is unknown, because this view has missed the event of its request.
            let label = styled![name];
            self.known
                .push(CallLine::new(id, label.clone(), Some(since)));
            label
        };
        if self.form == CallForm::Live {
            self.show();
        } else {
            let sign = self.style.pick("→", ">");
            let line = styled![sign, " ", self.fit(&label, 2)];
            self.print(line);
        }
    }

    pub(super) fn finished(&mut self, id: &CallId, name: &str, end: &CallEnd<'_>) {
        let at = self.known.iter().position(|call| call.id == *id);
        let call = at.map(|at| self.known.remove(at));
        let call = call.unwrap_or_else(|| CallLine::new(id, styled![name], None));
        let mut label = call.label;
        if let Some(change) = end.change {
            label.push(&change_counts(change, self.style));
        }
        let (symbol, role, word) = end.label();
        let ran = end.outcome != CallOutcome::Denied;
        let time = labels::whole_milliseconds(end.after_ms);
        let mut about: Vec<&str> = Vec::new();
        about.extend(ran.then_some(time.as_str()));
        about.extend((!word.is_empty()).then_some(&*word));
        let mut lines = self.row(symbol, role, &label, &about.join(", "));
        if matches!(end.outcome, CallOutcome::Failed | CallOutcome::Unknown) {
            let first = end.content.lines().find(|line| !line.trim().is_empty());
            let first = styled![first.unwrap_or_default().trim()];
            let first = first.cut(ERROR_COLUMNS, self.style.pick("…", "..."));
            if !first.is_empty() {
                lines.push_line(&styled!["  ", self.style.paint(TextRole::Dim, first)]);
            }
        }
        if matches!(role, TextRole::Bad | TextRole::Warning | TextRole::Alarm) {
            let (left_out, kept) = call.output.kept();
            self.push_output(left_out, kept, &mut lines);
        } else if self.form == CallForm::Live {
            let (left_out, brief) = call.output.brief();
            self.push_output(left_out, brief, &mut lines);
        }
        // The diff is omitted if the permission question has already shown it.
        let shown = call.asked.unwrap_or_default();
        if let Some(change) = end.change.filter(|change| change.lines != shown) {
            let columns = self.queue.columns().unwrap_or(COLUMNS_DEFAULT);
            lines.push(&change_lines(change, self.style, columns));
        }
        self.print(lines);
        self.show();
    }

    /// Adds the last lines of an output, and the number of lines that are left out before them.
    fn push_output<'a>(
        &self,
        left_out: usize,
        shown: impl Iterator<Item = &'a str>,
        to: &mut Styled,
    ) {
        let bar = self.style.pick("│", "|");
        let more = match left_out {
            0 => None,
            1 => Some("1 line more".to_owned()),
            count => Some(format!("{count} lines more")),
        };
        let more = more.map(|more| format!("{} {more}", self.style.pick("…", "...")));
        let rows = more.into_iter().map(Cow::Owned);
        for line in rows.chain(shown.map(Cow::Borrowed)) {
            let line = styled!["  ", bar, " ", self.fit(&styled![line], 4)];
            to.push_line(&self.style.paint(TextRole::Dim, line));
        }
    }

    /// Removes all live lines at the end of the turn. If the turn was stopped, the receipt lists the calls that were
    /// running.
    pub(super) fn end(&mut self) {
        self.model = None;
        self.known.clear();
        self.show();
    }

    /// The permanent line of a finished call.
    fn row(&self, symbol: Symbol, role: TextRole, label: &Styled, about: &str) -> Styled {
        let about = styled![about];
        let sign = self.style.paint(role, self.style.symbol(symbol));
        let mut row = Styled::default();
        let columns = self.queue.columns().unwrap_or(COLUMNS_DEFAULT);
        let beside = columns.saturating_sub(5 + about.width());
        if beside < label.widest().min(LABEL_COLUMNS_MIN) {
            row.push_line(&styled![sign, " ", self.fit(label, 2)]);
            for line in about.wrap(columns.saturating_sub(3).max(1)) {
                row.push_line(&styled!["  ", self.style.paint(TextRole::Dim, line)]);
            }
            return row;
        }
        let label = self.fit(label, 4 + about.width());
        row.push_line(&styled![
            sign,
            " ",
            label,
            "  ",
            self.style.paint(TextRole::Dim, about)
        ]);
        row
    }

    fn fit(&self, label: &Styled, used: usize) -> Styled {
        let columns = self.queue.columns().unwrap_or(COLUMNS_DEFAULT);
        let room = columns.saturating_sub(used + 1);
        label.cut(room, self.style.pick("…", "..."))
    }

    /// Prints permanent lines.
    fn print(&self, lines: Styled) {
        if self.form != CallForm::Hidden {
            self.queue.lines(lines, OutputPriority::Required);
        }
    }

    /// Redraws the live lines.
    fn show(&self) {
        if self.form != CallForm::Live {
            return;
        }
        let style = self.style;
        let running = |label: &Styled, clock, tail| RunningLine {
            label: label.clone(),
            clock,
            progress: None,
            tail,
            style,
        };
        let model = self.model.iter().filter(|model| model.shown);
        let model =
            model.map(|model| running(&model.label, RunningClock::Since(model.since), Vec::new()));
        let calls = self.known.iter().filter_map(|call| {
            let tail = call.output.live().map(|line| styled![line]).collect();
            let clock = RunningClock::Since(call.since?);
            Some(RunningLine {
                progress: call.progress.clone(),
                ..running(&call.label, clock, tail)
            })
        });
        let stopping = self.force_at.map(|at| {
            let label = styled!["stopping", style.pick("…", "...")];
            running(&label, RunningClock::ForceAt(at), Vec::new())
        });
        let lines = model.chain(calls).chain(stopping);
        self.queue.show_running(lines.collect());
    }
}

fn running_progress(progress: &CallProgress) -> RunningProgress {
    RunningProgress {
        share: progress.share(),
        amounts: progress.amounts(),
        message: progress.message.clone(),
    }
}
