//! List at the terminal, from which the user picks the session to continue.

mod candidate;
mod picker;

use allstop_core::SessionId;
use allstop_terminal::{
    Environment, InputMode, InputReader, JobChange, OutputPriority, OutputQueue, TerminalDevice,
};
use anyhow::Context as _;

pub(crate) use self::candidate::SessionCandidate;
use self::picker::{PickStep, SessionPicker};
use crate::error::CliError;
use crate::supervise::Supervisor;
use crate::suspend::{job_control, suspend_idle};

/// Assumed rows of a terminal that does not report its height.
const ROWS_DEFAULT: usize = 24;

/// Session that the user chose.
#[derive(Debug)]
pub(crate) struct PickedSession {
    pub(crate) id: SessionId,
    /// Reader of the terminal, which holds the keys that were typed after the choice.
    pub(crate) reader: InputReader,
}

/// Lets the user choose a session. `None` if the user declines, if a signal arrives, or if the terminal is gone.
///
/// # Errors
/// If the terminal cannot be used.
///
/// # Cancel safety
/// Dropping the future restores the mode of the terminal.
pub(crate) async fn pick(
    candidates: Vec<SessionCandidate>,
    device: TerminalDevice,
    (queue, environment): (&OutputQueue, &Environment),
    supervisor: &mut Supervisor,
) -> Result<Option<PickedSession>, CliError> {
    let style = environment.style(true);
    let mode = if environment.has_cursor() {
        InputMode::Keys {
            marks_pastes: true,
            reports_focus: false,
        }
    } else {
        InputMode::Lines
    };
    let in_lines = mode == InputMode::Lines;
    let mut reader = InputReader::new(device, mode).context("cannot use the terminal")?;
    let mut job = job_control()?;
    let mut picker = SessionPicker::new(candidates);
    reader.take();
    if in_lines {
        queue.lines(picker.list(style), OutputPriority::Required);
    }
    let show = |picker: &SessionPicker| {
        let rows = queue.rows().unwrap_or(ROWS_DEFAULT);
        let mut line = picker.input_line(style, rows);
        if in_lines {
            line.above.clear();
            line.prefix = "number, or words of it [1] > ".into();
            line.is_echoed = true;
        }
        queue.show_input_line(Some(line));
    };
    show(&picker);
    let chosen = 'choice: loop {
        tokio::select! {
            biased;
            _stop = supervisor.next() => break None,
            keys = reader.next() => {
                // `None` means that the terminal is gone.
                let Some(keys) = keys else { break None };
                let mut keys = keys.into_iter();
                while let Some(key) = keys.next() {
                    let step = if in_lines {
                        if key.ends_line() {
                            queue.end_echoed_line();
                        }
                        picker.press_in_lines(key)
                    } else {
                        picker.press(key)
                    };
                    match step {
                        PickStep::Pending => {}
                        PickStep::Unclear(count) => {
                            let said = format!("{count} sessions match; type the number of one, or more words");
                            queue.lines(said, OutputPriority::Required);
                        }
                        PickStep::Chosen(id) => {
                            reader.unread(keys);
                            break 'choice Some(id);
                        }
                        PickStep::Cancelled => break 'choice None,
                    }
                }
            }
            change = job.next() => match change {
                JobChange::Suspend => suspend_idle((queue, style), || reader.suspend()),
                JobChange::Resumed => {
                    reader.resume();
                    queue.show_region();
                }
                JobChange::Resized => {}
            },
        }
        show(&picker);
    };
    queue.show_input_line(None);
    Ok(chosen.map(|id| PickedSession { id, reader }))
}
