//! A user at a terminal, in a chat.

use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, tcgetattr};

use super::terminal::{Terminal, without_marks};
use super::wait::within;
use super::{Allstop, Ended, FACT_MAX, Place, Running};

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";

/// Minimum time between two presses of a key that the chat must count as two presses.
const ANOTHER_PRESS: Duration = Duration::from_millis(200);

/// The chat sends this control sequence when it has taken over the terminal. Keys that are typed earlier might not
/// reach the chat.
const READY: &str = "\x1b[?2004h";

/// Script of the model in a chat.
pub(crate) const SCRIPT: &str = r#"
turns:
  - when: hang
    replies:
      - {text: "This sentence has no end at all.", stall: mid_stream}
  - when: short
    replies:
      - {text: "A short answer."}
  - when: server
    replies:
      - calls: [{tool: shell, arguments: {command: "echo up; sleep 600", background: true}}]
      - {text: "It is up."}
  - when: orphan
    replies:
      - calls: [{tool: shell, arguments: {command: "P=$PPID; sleep 0.3; kill -9 $P; sleep 600", background: true}}]
      - {text: "It has no keeper."}
  - when: stubborn
    replies:
      - calls: [{tool: shell, arguments: {command: "trap '' TERM INT HUP; echo x > begun; while :; do sleep 1; done"}}]
      - {text: "Never said."}
  - when: wake
    replies:
      - calls: [{tool: shell, arguments: {command: "echo up", background: true}}]
      - {text: "It runs behind."}
      - {text: "I heard of its end."}
  - when: Summarise
    replies:
      - {text: "It was short."}
  - when: touch
    replies:
      - calls: [{tool: shell, arguments: {command: "echo x > touched"}}]
      - {text: "It is done."}
  - when: sleep in there
    replies:
      - calls: [{tool: shell, arguments: {command: "echo x > sleeps; sleep 600"}}]
      - {text: "It was cut short."}
  - when: someone else
    replies:
      - calls: [{tool: agent, arguments: {prompt: "sleep in there"}}]
      - {text: "That is that."}
  - when: two others
    replies:
      - calls:
          - {tool: agent, arguments: {prompt: "touch the file"}}
          - {tool: agent, arguments: {prompt: "touch it too"}}
      - {text: "Done by both."}
  - when: delegate
    replies:
      - calls: [{tool: agent, arguments: {prompt: "touch the file"}}]
      - {text: "Done by another."}
replies: []
"#;

/// A user at a terminal, in a chat.
pub(crate) struct ChatUser<'a> {
    pub(crate) terminal: Terminal,
    pub(crate) chat: Running,
    place: &'a Place,
}

impl<'a> ChatUser<'a> {
    pub(crate) fn start_chat(place: &'a Place, args: &str) -> Self {
        Self::start(place, place.allstop().arg("chat").args(args))
    }

    pub(crate) fn start(place: &'a Place, command: Allstop<'_>) -> Self {
        Self::at_terminal(place, command, Terminal::new())
    }

    pub(crate) fn at_terminal(place: &'a Place, command: Allstop<'_>, terminal: Terminal) -> Self {
        let command = command.arg("--model").arg(place.script(SCRIPT));
        Self::with_model(place, command, terminal)
    }

    /// Starts a chat with the model in the arguments of the command.
    pub(crate) fn with_model(place: &'a Place, command: Allstop<'_>, terminal: Terminal) -> Self {
        let copy = terminal
            .line()
            .try_clone()
            .expect("a terminal can be duplicated");
        let command = command.arg("--store").arg(place.store());
        let command = command.env("TERM", "xterm").env("LANG", "C.UTF-8");
        let chat = command.on_terminal(terminal.line()).stdout(copy).start();
        terminal.wait(READY);
        Self {
            terminal,
            chat,
            place,
        }
    }

    pub(crate) fn types(&self, line: &str) -> &Self {
        self.presses(line).presses("\r")
    }

    /// Answers the open permission question, as soon as the chat accepts an answer.
    #[track_caller]
    pub(crate) fn answers(&self, reply: &str) -> &Self {
        self.waits_for_choices().types(reply)
    }

    /// Waits until the open permission question shows its answers, in the long or the short form.
    #[track_caller]
    pub(crate) fn waits_for_choices(&self) -> &Self {
        let is_asking = || {
            let screen = self.screen();
            let asks = screen.contains("[y]es, once") || screen.contains("y/a/n");
            asks.then_some(())
        };
        let seen = within(FACT_MAX, is_asking);
        assert!(seen.is_some(), "no question:\n{}", self.screen());
        self
    }

    pub(crate) fn presses(&self, keys: &str) -> &Self {
        self.terminal.type_keys(keys);
        self
    }

    /// The text of the screen without marks, including rows that have scrolled out of the window.
    pub(crate) fn screen(&self) -> String {
        without_marks(&self.marked_screen())
    }

    /// The text of the screen, including rows that have scrolled out of the window.
    pub(crate) fn marked_screen(&self) -> String {
        let mut parser = vt100::Parser::new(200, self.terminal.columns(), 0);
        parser.process(self.terminal.written().as_bytes());
        parser.screen().contents()
    }

    #[track_caller]
    pub(crate) fn waits_for(&self, text: &str) -> &Self {
        let seen = within(FACT_MAX, || self.screen().contains(text).then_some(()));
        assert!(
            seen.is_some(),
            "no {text:?} on the screen:\n{}",
            self.screen()
        );
        self
    }

    /// Waits until there is a status that names no key that stops work.
    #[track_caller]
    pub(crate) fn waits_until_idle(&self) -> &Self {
        let is_idle = || {
            let screen = self.screen();
            let mut rows = screen.trim_end().lines().rev();
            let status = rows.next().unwrap_or_default();
            // While the text of an answer is written, the last row can be a row of this text.
            let is_status = rows.next().is_some_and(|row| row.starts_with('›'));
            let is_busy = ["Esc stops", "Ctrl-C uses force", "Ctrl-C forces"]
                .iter()
                .any(|keys| status.contains(keys));
            (is_status && !is_busy).then_some(())
        };
        let seen = within(FACT_MAX, is_idle);
        assert!(seen.is_some(), "work runs:\n{}", self.screen());
        self
    }

    /// Clears the line, and waits until it is empty. Ctrl-C is a signal, so it can overtake keys, or keys can overtake it.
    #[track_caller]
    pub(crate) fn clears_line(&self) -> &Self {
        let is_empty = |screen: &str| screen.lines().any(|row| row.trim_end() == "›");
        self.presses(CTRL_C);
        let seen = within(FACT_MAX, || is_empty(&self.screen()).then_some(()));
        assert!(seen.is_some(), "the line has text:\n{}", self.screen());
        self
    }

    /// Like [`Self::waits_for`], but the text may be wrapped between any two words.
    #[track_caller]
    pub(crate) fn waits_for_words(&self, text: &str) -> &Self {
        let words = |screen: &str| screen.split_whitespace().collect::<Vec<_>>().join(" ");
        let seen = within(FACT_MAX, || {
            words(&self.screen()).contains(text).then_some(())
        });
        assert!(
            seen.is_some(),
            "no {text:?} on the screen:\n{}",
            self.screen()
        );
        self
    }

    #[track_caller]
    pub(crate) fn waits_for_twice(&self, text: &str) {
        let seen = within(FACT_MAX, || {
            (self.screen().matches(text).count() == 2).then_some(())
        });
        assert!(
            seen.is_some(),
            "{text:?} is not there twice:\n{}",
            self.screen()
        );
    }

    /// Presses a key repeatedly until its effect is visible. The pauses are long enough for the presses to count as
    /// separate presses.
    #[track_caller]
    pub(crate) fn presses_until(&self, key: &str, text: &str) {
        let mut pressed = Instant::now();
        self.presses(key);
        let seen = within(FACT_MAX, || {
            if self.screen().contains(text) {
                return Some(());
            }
            if pressed.elapsed() >= ANOTHER_PRESS {
                pressed = Instant::now();
                self.presses(key);
            }
            None
        });
        assert!(
            seen.is_some(),
            "no {text:?} on the screen:\n{}",
            self.screen()
        );
    }

    /// Waits for the end of the chat. Asserts that no process is left and that the terminal is restored. Returns the
    /// result and the last screen.
    #[track_caller]
    pub(crate) fn leaves_chat(self) -> (Ended, String) {
        const END: &str = "allstop sessions resume";
        // The chat lists the running work, and lists it again if the work has changed before the next press.
        let mut pressed = 0;
        let left = within(FACT_MAX, || {
            let screen = self.screen();
            let lists = screen.matches("still running:").count();
            if lists > pressed && !screen.contains(END) {
                self.presses(CTRL_D);
            }
            pressed = lists;
            // The test reads the output a little later than the chat writes it. So wait for the last line of the chat.
            screen.contains(END).then_some(())
        });
        assert!(left.is_some(), "the chat goes on:\n{}", self.screen());
        let screen = self.screen();
        let ended = self.chat.end(FACT_MAX);
        let mode = tcgetattr(self.terminal.line()).expect("the terminal is there");
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(mode.local_modes.contains(cooked), "{:?}", mode.local_modes);
        self.place.assert_nothing_runs();
        (ended, screen)
    }
}

/// Asserts that the texts appear in this order.
#[track_caller]
pub(crate) fn assert_in_order(screen: &str, texts: &[&str]) {
    let mut rest = screen;
    for text in texts {
        let at = rest.find(text);
        let at = at.unwrap_or_else(|| panic!("no {text:?} in its place:\n{screen}"));
        rest = &rest[at + text.len()..];
    }
}
