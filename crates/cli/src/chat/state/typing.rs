//! Input line of the user: messages, commands, and answers to permission questions.

use std::sync::Arc;
use std::time::Instant;

use allstop_runtime::Definitions;
use allstop_terminal::{
    EditResult, HistorySearch, InputHistory, InputLine, Key, LineEditor, QuestionQueue,
    QuestionReply, SearchStep, Style, Styled, TerminalQuestion, TextRole, styled,
};
use allstop_tools::PermissionAnswer;

use super::super::command::TypedLine;
use super::super::complete::{Completed, CompletionNames, complete};
use super::event::ChatEffect;
use super::messages::WaitingMessage;
use crate::questions::permission_of;

/// Result of a key.
#[derive(Debug)]
pub(super) enum InputResult {
    /// The key has not completed the line.
    Nothing,
    /// A message or a command was submitted. The text is the line as typed.
    Line(TypedLine, String),
    /// The user answered a question.
    Answer(u64, PermissionAnswer),
    /// The user wants to see more of a question.
    ShowMore(u64),
    /// The key Tab: the chat has to supply names that can complete the line.
    Complete,
    /// A note for the user.
    Note(String),
    /// Ctrl-D on an empty line.
    Leave,
}

/// Text that the user types, and the open questions.
#[derive(Debug)]
pub(in crate::chat) struct TypedInput {
    editor: LineEditor,
    history: InputHistory,
    search: Option<HistorySearch>,
    /// Open permission questions. While a question is open, keys edit the reply to it, and the typed message stays
    /// unchanged.
    questions: QuestionQueue,
    /// Commands from files.
    definitions: Arc<Definitions>,
    style: Style,
    /// True if the terminal itself shows typed lines and lets the user edit them. Such a line cannot return to the user.
    is_line_mode: bool,
}

impl TypedInput {
    pub(in crate::chat) fn new(history: InputHistory, style: Style, is_line_mode: bool) -> Self {
        Self {
            editor: LineEditor::default(),
            history,
            search: None,
            questions: if is_line_mode {
                QuestionQueue::of_lines()
            } else {
                QuestionQueue::default()
            },
            definitions: Arc::default(),
            style,
            is_line_mode,
        }
    }

    /// Adds the commands from files.
    pub(in crate::chat) fn with_definitions(self, definitions: &Arc<Definitions>) -> Self {
        Self {
            definitions: Arc::clone(definitions),
            ..self
        }
    }

    pub(super) fn input_line<'a>(
        &self,
        waiting: impl Iterator<Item = WaitingMessage<'a>>,
        now: Instant,
    ) -> InputLine {
        let mut line = match (self.questions.input_line(self.style, now), &self.search) {
            (Some(mut reply), _) => {
                reply.above.splice(..0, self.draft());
                reply
            }
            (None, Some(search)) => {
                let sign = self.style.pick("›", ">");
                let (text, cursor) = search.shown();
                self.line(
                    &format!("  search: {} {sign} ", search.query()),
                    text,
                    cursor,
                )
            }
            (None, None) => {
                let sign = self.style.pick("› ", "> ");
                self.line(sign, self.editor.text(), self.editor.cursor())
            }
        };
        let waiting = waiting.map(|message| {
            let when = if message.steers {
                "  after this step: "
            } else {
                "  waits: "
            };
            self.style.paint(TextRole::Dim, styled![when, message.text])
        });
        let of_question = std::mem::take(&mut line.above);
        line.above = waiting.chain(of_question).collect();
        if self.questions.opens_at(now).is_some() {
            let said = "  a question is open: pause for a moment, then answer it";
            line.above.push(self.style.paint(TextRole::Warning, said));
        }
        line
    }

    /// The message that was being typed when the question appeared, as a line above the reply.
    fn draft(&self) -> Option<Styled> {
        let line = self.editor.text().lines().next()?;
        let said = styled!["  your message: ", line];
        Some(self.style.paint(TextRole::Dim, said))
    }

    /// Time at which the input line changes although no key is pressed.
    pub(super) fn changes_at(&self, now: Instant) -> Option<Instant> {
        self.questions.opens_at(now)
    }

    fn line(&self, prefix: &str, text: &str, cursor: usize) -> InputLine {
        InputLine {
            above: Vec::new(),
            prefix: styled![prefix],
            text: text.to_owned(),
            cursor,
            style: self.style,
            narrow: None,
            is_echoed: false,
        }
    }

    pub(super) fn asked(&mut self, question: TerminalQuestion, now: Instant) {
        let has_draft = !self.editor.text().is_empty();
        self.questions.open(question, has_draft, now);
    }

    pub(super) fn shown_more(&mut self, number: u64, rows_left: usize) {
        self.questions.shown_more(number, rows_left);
    }

    pub(super) fn question_over(&mut self, number: u64, now: Instant) {
        let typed = self.questions.close(number, now);
        // A reason that was being typed is not lost. A single letter was the beginning of an answer, and a slash the
        // beginning of a command.
        let is_text = typed.chars().count() > 1 && !typed.starts_with('/');
        if is_text && !self.is_line_mode {
            self.put_after(&typed);
        }
    }

    /// Puts a refused message back on the line, unless the user has typed other text since then.
    pub(super) fn put_back(&mut self, text: &str) {
        if self.editor.text().is_empty() {
            self.editor.replace(text);
        }
    }

    /// Puts withdrawn messages before the text on the line.
    pub(super) fn put_before(&mut self, texts: &[String]) {
        let typed = self.editor.text();
        let mut lines: Vec<&str> = texts.iter().map(String::as_str).collect();
        lines.extend((!typed.is_empty()).then_some(typed));
        self.editor.replace(&lines.join("\n"));
    }

    /// True if the line is the beginning of a command that leaves the chat.
    pub(super) fn begins_to_quit(&self) -> bool {
        let text = self.editor.text();
        !text.is_empty() && ["/quit", "/exit"].iter().any(|quit| quit.starts_with(text))
    }

    /// True if a question is open.
    pub(super) fn has_question(&self) -> bool {
        !self.questions.is_empty()
    }

    /// True if a question is open and accepts an answer.
    pub(super) fn is_asking(&self, now: Instant) -> bool {
        self.questions.is_answerable(now)
    }

    pub(super) fn text(&self) -> &str {
        self.editor.text()
    }

    pub(super) fn seen_again(&mut self, now: Instant) {
        self.questions.seen_again(now);
    }

    pub(super) fn whole_text(&self) -> String {
        self.editor.whole_text()
    }

    /// Replaces the message by the text from an editor.
    pub(super) fn edited(&mut self, text: &str) {
        self.editor.replace(text);
    }

    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Ends an open search, or else clears the line. True if a search was open or the line had text.
    pub(super) fn clear(&mut self) -> bool {
        self.search.take().is_some() || !self.editor.replace("").is_empty()
    }

    pub(super) fn key(&mut self, key: Key, now: Instant) -> InputResult {
        if key == Key::Complete {
            return InputResult::Complete;
        }
        let key = match self.questions.press(key.clone(), now) {
            None => key,
            // The person was typing a message when the question appeared. The message is not sent before the person has
            // seen the question. A command works at any time.
            Some(QuestionReply::TooEarly(Key::Enter | Key::EndOfInput))
                if !self.editor.text().starts_with('/') =>
            {
                if !self.is_line_mode {
                    return InputResult::Nothing;
                }
                self.editor.replace("");
                let said = "a question came first: answer it, then type the line again";
                return InputResult::Note(said.to_owned());
            }
            Some(QuestionReply::TooEarly(key)) => key,
            Some(reply) => return self.replied(reply),
        };
        if let Some(search) = &mut self.search {
            match search.press(&key, &self.history) {
                SearchStep::Continues => return InputResult::Nothing,
                SearchStep::Cancelled => {
                    self.search = None;
                    return InputResult::Nothing;
                }
                SearchStep::Ended(line) => {
                    self.search = None;
                    line.map(|line| self.editor.replace(&line));
                }
            }
        }
        let key = self.continued(key);
        match self.editor.press(key) {
            EditResult::Edited => InputResult::Nothing,
            EditResult::Submitted(text) if self.questions.holds_back(&text, now) => {
                self.editor.replace(&text);
                InputResult::Note("no question is open: Enter sends it as a message".to_owned())
            }
            EditResult::Submitted(text) => self.submitted(text),
            EditResult::EndOfInput => InputResult::Leave,
            EditResult::Back => self.show_past(InputHistory::back),
            EditResult::Forward => self.show_past(|past, _| past.forward()),
            EditResult::Search => {
                self.search = Some(HistorySearch::default());
                InputResult::Nothing
            }
            EditResult::TooLong => InputResult::Note(
                "the input is too long: write it to a file, and ask the model to read the file"
                    .to_owned(),
            ),
        }
    }

    /// A backslash at the end of the text, then Enter: a new line takes the place of the backslash.
    fn continued(&mut self, key: Key) -> Key {
        let (text, cursor) = (self.editor.text(), self.editor.cursor());
        if key != Key::Enter || cursor < text.len() || !text.ends_with('\\') {
            return key;
        }
        self.editor.press(Key::Backspace);
        Key::NewLine
    }

    fn replied(&mut self, reply: QuestionReply) -> InputResult {
        match reply {
            QuestionReply::Answered(number, answer) => {
                InputResult::Answer(number, permission_of(&answer))
            }
            QuestionReply::ShowMore(number) => InputResult::ShowMore(number),
            QuestionReply::Other(line) if line.trim().starts_with('/') => self.submitted(line),
            QuestionReply::Other(line) => {
                let mut said = self.questions.usage().to_owned();
                if !self.is_line_mode {
                    self.put_after(&line);
                    said.push_str("; the text is back in your message");
                }
                InputResult::Note(said)
            }
            QuestionReply::TooEarly(_) | QuestionReply::Pending => InputResult::Nothing,
        }
    }

    /// Adds text to the message that is being typed.
    fn put_after(&mut self, text: &str) {
        let whole = format!("{}{text}", self.editor.text());
        self.editor.replace(&whole);
    }

    fn show_past(
        &mut self,
        walk: impl Fn(&mut InputHistory, &str) -> Option<String>,
    ) -> InputResult {
        if let Some(line) = walk(&mut self.history, self.editor.text()) {
            self.editor.replace(&line);
        }
        InputResult::Nothing
    }

    /// Completes the typed command if the cursor is at its end.
    pub(super) fn complete(&mut self, names: &CompletionNames) -> Vec<ChatEffect> {
        let editor = self.questions.reply_mut().unwrap_or(&mut self.editor);
        if self.search.is_some() || editor.cursor() < editor.text().len() {
            return Vec::new();
        }
        match complete(editor.text(), names) {
            Completed::Nothing => Vec::new(),
            Completed::Line(line) => {
                editor.replace(&line);
                Vec::new()
            }
            Completed::Choices(choices) => vec![ChatEffect::Note(choices.join("  "))],
        }
    }

    pub(super) fn submitted(&mut self, text: String) -> InputResult {
        let line = TypedLine::read(&text, &self.definitions);
        if line == TypedLine::Empty {
            return InputResult::Nothing;
        }
        self.history.add(text.trim_end());
        InputResult::Line(line, text)
    }
}

/// Effects of a line that is not a message.
pub(super) fn effects_of(line: TypedLine, text: String) -> Vec<ChatEffect> {
    match line {
        TypedLine::Command(command) => vec![
            ChatEffect::ShowCommand(text),
            ChatEffect::RunCommand(command),
        ],
        TypedLine::Wrong(why) => vec![ChatEffect::ShowCommand(text), ChatEffect::Note(why)],
        TypedLine::Empty
        | TypedLine::Message(_)
        | TypedLine::Prompt(_)
        | TypedLine::ServerPrompt(_) => Vec::new(),
    }
}
