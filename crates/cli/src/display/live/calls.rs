//! The calls that run, each with a line that changes, and the short line that stays of each.

use std::fmt::Write as _;
use std::time::Instant;

use allstop_core::message::Arguments;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, StopReason};

use super::super::style::{Role, Style, Symbol};
use super::super::writer::{Keep, Lane, Running};
use super::super::{escape, table, words};

/// Columns that a call may take where there is no terminal that says how many it has.
const COLUMNS_DEFAULT: usize = 100;
/// Columns of an error's beginning behind the line of the call that failed.
const ERROR_COLUMNS: usize = 120;

#[derive(Debug)]
pub(super) struct Calls {
    lane: Lane,
    style: Style,
    /// The terminal takes lines that change.
    moves: bool,
    model: Option<Model>,
    known: Vec<Call>,
}

/// The model call that runs, until it speaks.
#[derive(Debug)]
struct Model {
    label: String,
    since: Instant,
    shown: bool,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    label: String,
    since: Option<Instant>,
}

/// What a call came to that has its answer: a command may have failed all the same, and work may go on behind it.
fn answered(content: &str) -> (Symbol, Role, &str) {
    let last = content.lines().next_back().unwrap_or_default();
    let exit = last
        .strip_prefix('[')
        .and_then(|last| last.strip_suffix(']'));
    let exit = exit.filter(|exit| exit.starts_with("exit code ") || exit.starts_with("killed by "));
    if let Some(exit) = exit {
        return (Symbol::Bad, Role::Warning, exit);
    }
    let (goes_on, _) = content.split_once(';').unwrap_or((content, ""));
    if goes_on.starts_with("bg_") && goes_on.ends_with(" runs in the background") {
        return (Symbol::Running, Role::Good, goes_on);
    }
    (Symbol::Good, Role::Good, "")
}

impl Calls {
    pub(super) fn new(lane: Lane, style: Style, moves: bool) -> Self {
        Self {
            lane,
            style,
            moves,
            model: None,
            known: Vec::new(),
        }
    }

    pub(super) fn model_started(&mut self, step: u32, name: &str, since: Instant) {
        let label = format!("step {step}: {}", escape::line(name));
        let shown = true;
        self.model = Some(Model {
            label,
            since,
            shown,
        });
        self.show();
    }

    /// Its text is what is to be seen from now on.
    pub(super) fn model_speaks(&mut self) {
        if let Some(model) = self.model.as_mut().filter(|model| model.shown) {
            model.shown = false;
            self.show();
        }
    }

    pub(super) fn model_thinks(&mut self) {
        if let Some(model) = &mut self.model
            && !model.label.ends_with("(thinks)")
        {
            model.label.push_str(" (thinks)");
            self.show();
        }
    }

    /// It failed and will be called again.
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
        self.known.push(Call {
            id: id.clone(),
            label: escape::line(&words::call(name, arguments)).into_owned(),
            since: None,
        });
    }

    pub(super) fn started(&mut self, id: &CallId, name: &str, since: Instant) {
        let known = self.known.iter_mut().find(|call| call.id == *id);
        let label = if let Some(call) = known {
            call.since = Some(since);
            call.label.clone()
        } else {
            // Its request was missed.
            let label = escape::line(name).into_owned();
            self.known.push(Call {
                id: id.clone(),
                label: label.clone(),
                since: Some(since),
            });
            label
        };
        if self.moves {
            self.show();
        } else {
            let label = self.fit(&label, 2);
            let line = format!("{} {label}", self.style.pick("→", ">"));
            self.lane.lines(line, Keep::Must);
        }
    }

    pub(super) fn finished(
        &mut self,
        id: &CallId,
        name: &str,
        outcome: CallOutcome,
        after_ms: u64,
        content: &str,
    ) {
        let at = self.known.iter().position(|call| call.id == *id);
        let label = match at {
            Some(at) => self.known.remove(at).label,
            None => escape::line(name).into_owned(),
        };
        let (symbol, role, word) = match outcome {
            CallOutcome::Succeeded => answered(content),
            CallOutcome::Failed => (Symbol::Bad, Role::Bad, "failed"),
            CallOutcome::Denied => (Symbol::Denied, Role::Warning, "denied"),
            CallOutcome::Stopped => (Symbol::Stopped, Role::Warning, "stopped"),
            CallOutcome::TimedOut => (Symbol::Stopped, Role::Bad, "timed out"),
            CallOutcome::Unknown => (
                Symbol::Unknown,
                Role::Alarm,
                "may have completed; check before repeating",
            ),
        };
        let ran = !matches!(outcome, CallOutcome::Denied);
        let time = words::whole_milliseconds(after_ms);
        let mut about: Vec<&str> = Vec::new();
        about.extend(ran.then_some(time.as_str()));
        about.extend((!word.is_empty()).then_some(word));
        let about = about.join(", ");
        let label = self.fit(&label, 4 + table::width(&about));
        let mut line = format!(
            "{} {label}  {}",
            self.style.paint(role, self.style.symbol(symbol)),
            self.style.paint(Role::Dim, &about)
        );
        if outcome == CallOutcome::Failed {
            let first = content.lines().find(|line| !line.trim().is_empty());
            let first = escape::line(first.unwrap_or_default().trim()).into_owned();
            let first = table::cut(&first, ERROR_COLUMNS, self.style.pick("…", "..."));
            if !first.is_empty() {
                let _ = write!(line, "\n  {}", self.style.paint(Role::Dim, &first));
            }
        }
        self.lane.lines(line, Keep::Must);
        self.show();
    }

    /// Nothing runs any more. What had not ended was stopped; what came of it is in the receipt.
    pub(super) fn end(&mut self, stopped: Option<StopReason>) {
        self.model = None;
        for call in std::mem::take(&mut self.known) {
            if stopped.is_some() && call.since.is_some() {
                let said = "stopped: see the receipt";
                let label = self.fit(&call.label, 4 + said.len());
                let symbol = self.style.symbol(Symbol::Stopped);
                let line = format!(
                    "{} {label}  {}",
                    self.style.paint(Role::Warning, symbol),
                    self.style.paint(Role::Dim, said)
                );
                self.lane.lines(line, Keep::Must);
            }
        }
        self.show();
    }

    fn fit(&self, label: &str, used: usize) -> String {
        let columns = self.lane.columns().unwrap_or(COLUMNS_DEFAULT);
        let room = columns.saturating_sub(used + 1);
        table::cut(label, room, self.style.pick("…", "...")).into_owned()
    }

    /// Draws the lines that change.
    fn show(&self) {
        if !self.moves {
            return;
        }
        let style = self.style;
        let running = |label: &str, since| Running {
            label: label.to_owned(),
            since,
            style,
        };
        let model = self.model.iter().filter(|model| model.shown);
        let calls = self.known.iter();
        let lines = model
            .map(|model| running(&model.label, model.since))
            .chain(calls.filter_map(|call| Some(running(&call.label, call.since?))));
        self.lane.show_running(lines.collect());
    }
}
