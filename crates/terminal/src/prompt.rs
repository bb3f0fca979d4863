//! The prompt of `allstop run` for permission questions. The prompt holds the terminal only while a question is open;
//! at other times, typed text is for the shell.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::device::TerminalDevice;
use super::keys::Key;
use super::output::OutputStreams;
use super::question::{QuestionAnswer, QuestionQueue, QuestionReply, TerminalQuestion};
use super::question_text::RestHint;
use super::queue::OutputQueue;
use super::queue_state::OutputPriority;
use super::reader::{InputMode, InputReader};
use super::text::{Environment, Style, TextRole};

/// Interval between two checks whether this process is in the foreground again.
const FOREGROUND_POLL: Duration = Duration::from_millis(100);

/// A person's reply to the question with this number.
#[derive(Debug, PartialEq)]
pub enum PromptReply {
    /// The answer.
    Answer(u64, QuestionAnswer),
    /// The person wants to see more of the question.
    ShowMore(u64),
}

/// Asks questions at a terminal at which a person types only answers.
#[derive(Debug)]
pub struct QuestionPrompt {
    queue: OutputQueue,
    style: Style,
    mode: InputMode,
    reader: InputReader,
    /// True if the terminal is gone. Then every question is denied.
    is_gone: bool,
    /// True if the terminal was held when the last key was read. A question that the person sees again begins a new quiet
    /// time.
    was_taken: bool,
    questions: QuestionQueue,
    /// Keys that were typed after an answer, for the next open question.
    keys: VecDeque<Key>,
}

impl QuestionPrompt {
    /// The prompt at the terminal of this process; `None` if there is no person to ask.
    pub fn of_process(output: &OutputStreams, environment: &Environment) -> Option<Self> {
        let device = TerminalDevice::of_process()?;
        let queue = match output.terminal() {
            Some(queue) => queue.clone(),
            None => OutputQueue::new(device.to_file()?, "tty").ok()?,
        };
        Self::new(queue, device, environment).ok()
    }

    /// Creates a prompt that writes to `queue` and reads from a terminal.
    ///
    /// # Errors
    /// If the terminal is gone, or there are no descriptors or threads left.
    fn new(
        queue: OutputQueue,
        device: TerminalDevice,
        environment: &Environment,
    ) -> io::Result<Self> {
        let mode = InputMode::of_question(environment);
        Ok(Self {
            queue,
            style: environment.style(true),
            mode,
            reader: InputReader::new(device, mode)?,
            is_gone: false,
            was_taken: false,
            questions: match mode {
                InputMode::Lines => QuestionQueue::of_lines(),
                InputMode::Keys { .. } => QuestionQueue::default(),
            },
            keys: VecDeque::new(),
        })
    }

    /// Output queue of the terminal, for the texts of questions.
    pub fn queue(&self) -> &OutputQueue {
        &self.queue
    }

    /// Colours and symbols of the terminal.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Place where the prompt displays the number of a question's rows that are not shown yet.
    pub fn rest_hint(&self) -> RestHint {
        self.mode.rest_hint()
    }

    /// True if the terminal is gone. Every question is then denied without a person.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// True if a person can answer. In the background, a read of the terminal would stop the whole process.
    pub fn can_ask(&self) -> bool {
        !self.is_gone && self.reader.device().is_foreground()
    }

    /// Takes the terminal for the following questions, unless a question is already open. Call this before a question
    /// is shown, because text typed before the question is not an answer.
    pub fn begin(&mut self) {
        if self.questions.is_empty() {
            self.keys.clear();
            self.reader.take_afresh();
            self.was_taken = self.reader.is_taken();
        }
    }

    /// Opens a question that has been shown.
    pub fn open(&mut self, question: TerminalQuestion) {
        self.questions.open(question, false, Instant::now());
        self.show();
    }

    /// Records that more of a question was shown.
    pub fn shown_more(&mut self, number: u64, rows_left: usize) {
        self.questions.shown_more(number, rows_left);
        self.show();
    }

    /// Closes a question that was answered elsewhere or withdrawn.
    pub fn close(&mut self, number: u64) {
        self.questions.close(number, Instant::now());
        self.show();
    }

    /// The next reply. Waits for ever while no question is open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> PromptReply {
        loop {
            if self.questions.is_empty() {
                return std::future::pending().await;
            }
            let now = Instant::now();
            if let Some(number) = self.is_gone.then(|| self.questions.deny(now)).flatten() {
                self.show();
                return PromptReply::Answer(number, QuestionAnswer::No(String::new()));
            }
            while let Some(key) = self.keys.pop_front() {
                let reply = self.press(key);
                self.show();
                if let Some(reply) = reply {
                    return reply;
                }
            }
            self.reader.take();
            let is_taken = self.reader.is_taken();
            if is_taken && !std::mem::replace(&mut self.was_taken, is_taken) {
                self.questions.seen_again(now);
            }
            // The question may have become answerable since the last wait.
            self.show();
            let look_at = if self.reader.is_taken() {
                self.questions.opens_at(now)
            } else {
                // `fg` sends no signal to a process that runs.
                Some(now + FOREGROUND_POLL)
            };
            let look = async {
                match look_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                keys = self.reader.next() => match keys {
                    Some(keys) => self.keys.extend(keys),
                    None => self.is_gone = true,
                },
                () = look => self.reader.resume(),
            }
        }
    }

    fn press(&mut self, key: Key) -> Option<PromptReply> {
        if key.ends_line() && self.mode == InputMode::Lines {
            self.queue.end_echoed_line();
        }
        match self.questions.press(key, Instant::now())? {
            QuestionReply::Answered(number, answer) => {
                return Some(PromptReply::Answer(number, answer));
            }
            QuestionReply::ShowMore(number) => return Some(PromptReply::ShowMore(number)),
            // Nothing else is typed here.
            QuestionReply::TooEarly(_) | QuestionReply::Pending => {}
            QuestionReply::Other(_) => {
                let said = self.questions.usage();
                let said = self.queue.fitted(said.into());
                let line = self.style.paint(TextRole::Dim, said);
                self.queue.lines(line, OutputPriority::Required);
            }
        }
        None
    }

    /// Draws the input line with the reply, or gives the terminal back if no question is open.
    pub fn show(&self) {
        let mut input_line = self.questions.input_line(self.style, Instant::now());
        // In the background, the prompt would be drawn over the line of the shell.
        input_line = input_line.filter(|_| self.reader.is_taken());
        if let Some(input_line) = &mut input_line {
            input_line.is_echoed = self.mode == InputMode::Lines;
        }
        if self.questions.is_empty() {
            self.reader.release();
        }
        self.queue.show_input_line(input_line);
    }

    /// Gives the terminal to the shell while the process is suspended.
    pub fn suspend(&mut self) {
        self.was_taken = false;
        self.reader.suspend();
    }

    /// Takes the terminal again, if a question is open.
    pub fn resume(&self) {
        self.reader.resume();
    }
}

impl Drop for QuestionPrompt {
    fn drop(&mut self) {
        self.queue.show_input_line(None);
    }
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
mod tests;
