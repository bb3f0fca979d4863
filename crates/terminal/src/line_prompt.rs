//! Questions that a person answers with a typed line. The questions are asked before a session is open, when a person
//! types nothing else.

use std::collections::VecDeque;

use super::device::TerminalDevice;
use super::editor::{EditResult, LineEditor};
use super::input_line::InputLine;
use super::job_control::{JobChange, JobControl, suspend};
use super::keys::Key;
use super::output::OutputStreams;
use super::queue::OutputQueue;
use super::queue_state::OutputPriority;
use super::reader::{InputMode, InputReader};
use super::text::{Environment, Style, Styled, styled};

/// Indentation of the further rows of a long line, in columns.
const HANGING_COLUMNS: usize = 2;
/// Minimum columns of text for breaks between words.
const TEXT_COLUMNS_MIN: usize = 10;

/// Changes of the job, if their signals can be received.
struct JobWatch(Option<JobControl>);

impl JobWatch {
    fn install() -> Self {
        Self(JobControl::install().ok())
    }

    /// # Cancel safety
    /// Cancel safe.
    async fn next(&mut self) -> JobChange {
        match &mut self.0 {
            Some(job) => job.next().await,
            None => std::future::pending().await,
        }
    }
}

/// Asks for lines. The prompt holds the terminal while a question is open, so that typed text is for the prompt and not
/// for the shell.
#[derive(Debug)]
pub struct LinePrompt {
    queue: OutputQueue,
    style: Style,
    mode: InputMode,
    reader: InputReader,
    /// Keys that were typed after the last answer. These keys count if the answer was invalid and the person is asked
    /// again.
    keys: VecDeque<Key>,
}

impl LinePrompt {
    /// The prompt at the terminal of this process; `None` if no person can answer there.
    pub fn of_process(output: &OutputStreams, environment: &Environment) -> Option<Self> {
        let device = TerminalDevice::of_process().filter(TerminalDevice::is_foreground)?;
        let queue = match output.terminal() {
            Some(queue) => queue.clone(),
            None => OutputQueue::new(device.to_file()?, "tty").ok()?,
        };
        let mode = InputMode::of_question(environment);
        Some(Self {
            queue,
            style: environment.style(true),
            mode,
            reader: InputReader::new(device, mode).ok()?,
            keys: VecDeque::new(),
        })
    }

    /// Colours and symbols of the terminal.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Shows lines. Long lines are broken between words.
    pub fn show(&self, lines: impl Into<Styled>) {
        let columns = self.queue.columns().unwrap_or(usize::MAX);
        let mut shown = Styled::default();
        for line in lines.into().lines() {
            push_wrapped(&mut shown, &line, columns);
        }
        self.queue.lines(shown, OutputPriority::Required);
    }

    /// Takes the terminal for a question. Call this before the question is shown, because text typed before the
    /// question is not an answer.
    pub fn begin(&mut self) {
        self.keys.clear();
        self.reader.take_afresh();
    }

    /// Asks for a line; `None` if the terminal is gone, or at Ctrl-D. After an invalid line, call this method again.
    /// Text that was typed after the invalid line then counts as an answer.
    ///
    /// # Cancel safety
    /// Dropping the future loses the typed text. Dropping the prompt gives the terminal back.
    pub async fn ask(&mut self, prefix: Styled) -> Option<String> {
        self.reader.take();
        let mut job = JobWatch::install();
        let mut line = LineEditor::default();
        let answer = loop {
            self.queue.show_input_line(Some(InputLine {
                above: Vec::new(),
                prefix: prefix.clone(),
                text: line.text().to_owned(),
                cursor: line.cursor(),
                style: self.style,
                narrow: None,
                is_echoed: self.mode == InputMode::Lines,
            }));
            let key = tokio::select! {
                key = self.next_key() => key,
                change = job.next() => {
                    self.job_changed(change);
                    continue;
                }
            };
            let Some(key) = key else {
                break None;
            };
            match line.press(if key == Key::NewLine { Key::Enter } else { key }) {
                EditResult::Submitted(line) => break Some(line),
                EditResult::EndOfInput => break None,
                _ => {}
            }
        };
        if self.mode == InputMode::Lines {
            self.queue.end_echoed_line();
        }
        self.queue.show_input_line(None);
        self.reader.release();
        if let (Some(answer), InputMode::Keys { .. }) = (&answer, self.mode) {
            // The input line is gone from the screen, so the answer is shown again.
            let mut said = prefix;
            said.push(answer.as_str());
            self.show(said);
        }
        answer
    }

    /// Handles Ctrl-Z and `fg`: after `fg`, the question is on the screen again.
    fn job_changed(&mut self, change: JobChange) {
        match change {
            JobChange::Suspend => {
                let text = || "suspended · `fg` resumes Allstop".to_owned();
                let reader = &self.reader;
                suspend(Some((&self.queue, self.style)), text, || reader.suspend());
            }
            JobChange::Resumed => {
                self.reader.resume();
                self.queue.show_region();
            }
            JobChange::Resized => {}
        }
    }

    async fn next_key(&mut self) -> Option<Key> {
        while self.keys.is_empty() {
            self.keys.extend(self.reader.next().await?);
        }
        self.keys.pop_front()
    }
}

/// Adds a line in rows of at most `columns` columns. Rows after the first are indented further.
fn push_wrapped(shown: &mut Styled, line: &Styled, columns: usize) {
    let text = line.as_str();
    let indent = text.len() - text.trim_start_matches(' ').len();
    let room = columns.saturating_sub(indent + HANGING_COLUMNS);
    // A line with several blanks in sequence is not broken. A break would join these blanks, but a command must stay
    // unchanged.
    let has_gaps = text.trim_start_matches(' ').contains("  ");
    if line.width() <= columns || room < TEXT_COLUMNS_MIN || has_gaps {
        shown.push_line(line);
        return;
    }
    for (at, row) in line.wrap(room).iter().enumerate() {
        let columns = indent + if at == 0 { 0 } else { HANGING_COLUMNS };
        shown.push_line(&styled![format_args!("{:columns$}", ""), row.clone()]);
    }
}

impl Drop for LinePrompt {
    fn drop(&mut self) {
        self.queue.show_input_line(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_broken_between_words_and_short_one_stays() {
        let wrapped = |text: &str, columns| {
            let mut shown = Styled::default();
            push_wrapped(&mut shown, &Styled::text(text), columns);
            shown.shown().to_owned()
        };
        assert_eq!(
            wrapped("  - runs on stop: ./a  b", 18),
            "  - runs on stop: ./a  b\n"
        );
        assert_eq!(
            wrapped("  - runs on stop: ./a b", 18),
            "  - runs on\n    stop: ./a b\n"
        );
        assert_eq!(wrapped("a word", 3), "a word\n");
    }
}
