//! Tests of the chat's decisions, without a runtime and without a terminal.

use allstop_terminal::{InputHistory, Key, Style, Styled, TerminalQuestion};
use allstop_tools::PermissionAnswer;

use super::*;
use crate::chat::command::TypedTarget;
use crate::chat::complete::CompletionNames;

/// Time after which a question accepts an answer, if no key is pressed.
const QUESTION_IS_READ: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(2);

struct TestChat {
    state: ChatState,
    now: Instant,
}

impl TestChat {
    fn new() -> Self {
        Self {
            state: ChatState::new(
                TypedInput::new(InputHistory::in_memory(), Style::default(), false),
                Control::new(GRACE),
            ),
            now: Instant::now(),
        }
    }

    fn handles(&mut self, event: ChatEvent) -> Vec<ChatEffect> {
        self.state.handle(event, self.now)
    }

    fn later(&mut self) -> &mut Self {
        self.now += ONE_SIGNAL;
        self
    }

    fn types(&mut self, text: &str) {
        for c in text.chars() {
            self.handles(ChatEvent::Key(Key::Letter(c)));
        }
    }

    fn sends(&mut self, text: &str) -> Vec<ChatEffect> {
        self.types(text);
        self.handles(ChatEvent::Key(Key::Enter))
    }

    fn ctrl_c(&mut self) -> Vec<ChatEffect> {
        self.handles(ChatEvent::Signal(EndSignal::Interrupt))
    }

    /// Handles the answer to a request to leave.
    fn work_runs(&mut self, name: &str) -> Vec<ChatEffect> {
        self.handles(ChatEvent::WorkRuns(vec![name.to_owned()]))
    }

    /// Sends a message and begins its turn.
    fn runs(&mut self, number: MessageNumber) {
        let text = format!("message {number}");
        assert_eq!(self.sends(&text), [ChatEffect::Send(number, text.clone())]);
        self.handles(ChatEvent::Accepted {
            message: number,
            steers: false,
        });
        let shown = self.handles(ChatEvent::Began(Some(number)));
        assert_eq!(shown, [ChatEffect::ShowMessage(text)]);
    }

    /// Sends a message that the session hands to the running turn.
    fn steers(&mut self, number: MessageNumber, text: &str) {
        let sent = ChatEffect::Send(number, text.to_owned());
        assert_eq!(self.sends(text), [sent]);
        let accepted = ChatEvent::Accepted {
            message: number,
            steers: true,
        };
        assert_eq!(self.handles(accepted), []);
    }

    fn asked(&mut self, number: u64) {
        self.handles(ChatEvent::Asked(TerminalQuestion {
            number,
            call: format!("call_{number}"),
            always: "shell: ls".to_owned(),
            rows_left: 0,
        }));
        self.now += QUESTION_IS_READ;
    }

    fn line(&self) -> String {
        let entry = self.state.input_line(self.now).expect("it is typed into");
        entry.prefix.shown().to_owned() + &entry.text
    }
}

fn lists(name: &str) -> ChatEffect {
    ChatEffect::ListWork(vec![name.to_owned()])
}

fn is_leave(effects: &[ChatEffect]) -> bool {
    matches!(effects, [ChatEffect::AskToLeave])
}

/// A request to leave first lists the work that the end of the chat would stop. A second Ctrl-C immediately after the
/// first counts as the same press. A Ctrl-C much later lists the work again.
#[test]
fn leaving_names_running_work_before_the_stop() {
    let mut chat = TestChat::new();
    assert_eq!(chat.ctrl_c(), [ChatEffect::AskToLeave]);
    assert_eq!(chat.work_runs("bg_1"), [lists("bg_1")]);
    assert!(chat.ctrl_c().is_empty(), "it is the same press");
    chat.now += LEAVE_WITHIN;
    assert_eq!(chat.ctrl_c(), [ChatEffect::AskToLeave]);
    assert_eq!(chat.work_runs("bg_1"), [lists("bg_1")]);
    let quit = chat.sends("/quit");
    let shown = ChatEffect::ShowCommand("/quit".to_owned());
    assert_eq!(quit, [shown, ChatEffect::AskToLeave]);
    assert_eq!(chat.work_runs("bg_1"), [ChatEffect::Leave(None)]);
    let mut idle = TestChat::new();
    assert!(is_leave(&idle.handles(ChatEvent::Key(Key::EndOfInput))));
    let left = idle.handles(ChatEvent::MayLeave);
    assert_eq!(left, [ChatEffect::Leave(None)]);
    assert_eq!(idle.sends("too late"), []);
}

/// Regression: the list of one turn's work confirmed the stop of the next turn, and one Ctrl-D stopped that turn.
#[test]
fn a_confirmation_to_leave_holds_only_for_the_listed_work() {
    let changes: [fn(&mut TestChat); 5] = [
        |chat| drop(chat.handles(ChatEvent::Outcome(1))),
        |chat| drop(chat.handles(ChatEvent::Began(None))),
        |chat| drop(chat.handles(ChatEvent::Key(Key::Escape))),
        |chat| drop(chat.handles(ChatEvent::Key(Key::Redraw))),
        |chat| chat.types("a"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut chat = TestChat::new();
        chat.runs(1);
        assert_eq!(chat.work_runs("the turn"), [lists("the turn")], "{at}");
        change(chat.later());
        assert_eq!(chat.work_runs("the turn"), [lists("the turn")], "{at}");
    }
    let mut chat = TestChat::new();
    assert_eq!(chat.work_runs("bg_1"), [lists("bg_1")]);
    assert_eq!(chat.work_runs("bg_2"), [lists("bg_2")]);
    assert_eq!(chat.work_runs("bg_2"), [ChatEffect::Leave(None)]);
}

/// Regression: Ctrl-C left the chat a moment after a compaction or a list of models had ended.
#[test]
fn ctrl_c_does_not_leave_just_after_the_end_of_a_command() {
    for end in [
        ChatEvent::CommandEnded,
        ChatEvent::WorkEnded(CommandWork::Compacts),
    ] {
        let mut chat = TestChat::new();
        chat.handles(end);
        assert!(matches!(&*chat.later().ctrl_c(), [ChatEffect::Note(_)]));
        chat.now += END_TO_LEAVE;
        assert!(is_leave(&chat.ctrl_c()));
    }
}

#[test]
fn ctrl_c_stops_the_turn_and_then_forces() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.types("half");
    let stop = chat.ctrl_c();
    assert!(
        matches!(&*stop, [ChatEffect::StopTurn(cause)] if cause.to_string() == "user (ctrl-c)")
    );
    chat.state.stop_begun(chat.now);
    assert_eq!(chat.ctrl_c(), [], "one press is one");
    assert_eq!(chat.later().ctrl_c(), [ChatEffect::Force]);
    chat.handles(ChatEvent::Outcome(1));
    assert_eq!(
        chat.later().ctrl_c(),
        [ChatEffect::Force],
        "its receipt is not there yet"
    );
    chat.handles(ChatEvent::StopEnded);
    assert!(
        chat.line().ends_with("half"),
        "what was typed is still there"
    );
}

#[test]
fn escape_stops_the_turn_and_nothing_more() {
    let mut chat = TestChat::new();
    let escape = |chat: &mut TestChat| chat.handles(ChatEvent::Key(Key::Escape));
    assert_eq!(escape(&mut chat), []);
    chat.types("a word");
    assert_eq!(escape(&mut chat), []);
    chat.handles(ChatEvent::Key(Key::KillToStart));
    chat.runs(1);
    let effects = escape(&mut chat);
    let [ChatEffect::StopTurn(cause)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(cause.to_string(), "user (Esc)");
    chat.state.stop_begun(chat.now);
    assert_eq!(escape(chat.later()), [], "no force");
    assert_eq!(chat.ctrl_c(), [ChatEffect::Force]);
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_then_leaves() {
    let mut chat = TestChat::new();
    chat.types("half");
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::Note(said)] if said.contains("cleared")));
    assert_eq!(chat.line(), "> ");
    let left = chat.later().ctrl_c();
    assert_eq!(left, [ChatEffect::AskToLeave]);
    chat.handles(ChatEvent::MayLeave);
    assert!(chat.state.input_line(chat.now).is_none());
}

#[test]
fn ctrl_c_covers_a_message_whose_turn_has_not_begun() {
    let mut chat = TestChat::new();
    chat.sends("hello");
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::StopTurn(_)]));
}

#[test]
fn ctrl_c_gives_up_a_wait_before_it_leaves() {
    let mut chat = TestChat::new();
    chat.handles(ChatEvent::Works(CommandWork::Waits));
    assert_eq!(chat.ctrl_c(), [ChatEffect::GiveUpWait]);
    chat.handles(ChatEvent::WorkEnded(CommandWork::Waits));
    chat.now += END_TO_LEAVE;
    assert!(is_leave(&chat.ctrl_c()));
}

/// Regression: the end of a wait hid the running compaction, and Escape did not stop it any more.
#[test]
fn end_of_a_wait_hides_no_compaction_and_no_newer_wait() {
    let mut chat = TestChat::new();
    chat.handles(ChatEvent::Works(CommandWork::Waits));
    chat.handles(ChatEvent::Works(CommandWork::Waits));
    chat.handles(ChatEvent::Works(CommandWork::Compacts));
    chat.handles(ChatEvent::WorkEnded(CommandWork::Waits));
    assert_eq!(chat.state.activity(), ChatActivity::Compacts);
    let stop = chat.handles(ChatEvent::Key(Key::Escape));
    assert!(matches!(&*stop, [ChatEffect::StopTurn(_)]));
    chat.handles(ChatEvent::WorkEnded(CommandWork::Compacts));
    assert_eq!(chat.later().ctrl_c(), [ChatEffect::GiveUpWait]);
}

#[test]
fn backslash_and_enter_begin_a_new_line() {
    let mut chat = TestChat::new();
    assert_eq!(chat.sends("first\\"), []);
    assert_eq!(
        chat.sends("second"),
        [ChatEffect::Send(1, "first\nsecond".to_owned())]
    );
}

#[test]
fn ctrl_d_leaves_only_an_empty_line() {
    let mut chat = TestChat::new();
    chat.types("x");
    assert_eq!(chat.handles(ChatEvent::Key(Key::EndOfInput)), []);
    chat.handles(ChatEvent::Key(Key::Backspace));
    assert!(is_leave(&chat.handles(ChatEvent::Key(Key::EndOfInput))));
    assert_eq!(
        chat.handles(ChatEvent::Key(Key::Enter)),
        [],
        "nothing is read any more"
    );
}

#[test]
fn signals_leave_with_their_cause() {
    for (signal, cause, code) in [
        (EndSignal::Terminate, "shutdown (sigterm)", 143),
        (EndSignal::HangUp, "shutdown (sighup)", 129),
    ] {
        let mut chat = TestChat::new();
        chat.runs(1);
        let left = chat.handles(ChatEvent::Signal(signal));
        assert!(matches!(&*left, [ChatEffect::Leave(Some(said))] if said.to_string() == cause));
        assert!(
            chat.later()
                .handles(ChatEvent::Signal(EndSignal::Terminate))
                .is_empty()
        );
        let control = chat.state.into_control();
        assert!(control.next_moment().is_some());
        assert_eq!(control.exit_code(control.stop_reason()), code);
    }
}

#[test]
fn a_terminal_that_is_gone_is_a_hang_up() {
    let mut chat = TestChat::new();
    let left = chat.handles(ChatEvent::InputEnded);
    assert!(matches!(&*left, [ChatEffect::Leave(Some(_))]));
}

#[test]
fn a_message_waits_above_the_line_until_its_turn_begins() {
    let mut chat = TestChat::new();
    chat.runs(1);
    assert_eq!(chat.sends("next"), [ChatEffect::Send(2, "next".to_owned())]);
    let entry = chat.state.input_line(chat.now).unwrap();
    assert_eq!(entry.above, [Styled::from("  waits: next")]);
    assert!(chat.state.shows(Some(1)) && !chat.state.shows(Some(2)));
    chat.handles(ChatEvent::Outcome(1));
    let shown = chat.handles(ChatEvent::Began(Some(2)));
    assert_eq!(shown, [ChatEffect::ShowMessage("next".to_owned())]);
    assert!(chat.state.input_line(chat.now).unwrap().above.is_empty());
}

#[test]
fn superseded_answer_is_hidden_after_the_next_begins() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.sends("two");
    chat.handles(ChatEvent::Began(Some(2)));
    assert!(
        !chat.state.shows(Some(1)),
        "what lags of the first is too late"
    );
    chat.handles(ChatEvent::Outcome(1));
    assert!(
        chat.state.shows(Some(2)),
        "the first one's end is not the second's"
    );
    assert_eq!(
        chat.handles(ChatEvent::Began(Some(1))),
        [],
        "its turn is over"
    );
    assert!(chat.state.shows(Some(2)));
}

/// Regression: the turn had ended, and the chat was left before it had shown the end of the answer.
#[test]
fn leaving_after_the_turn_first_shows_its_outcome() {
    let mut chat = TestChat::new();
    chat.runs(1);
    assert_eq!(chat.handles(ChatEvent::MayLeave), []);
    assert_eq!(
        chat.handles(ChatEvent::Outcome(1)),
        [ChatEffect::Leave(None)]
    );
    // Without an outcome, a second press leaves.
    let mut chat = TestChat::new();
    chat.runs(1);
    assert_eq!(chat.handles(ChatEvent::MayLeave), []);
    assert_eq!(chat.handles(ChatEvent::MayLeave), [ChatEffect::Leave(None)]);
}

/// Regression: the end of a message that was being typed when a question appeared answered the question: `please do y`
/// and Enter allowed the call.
#[test]
fn a_message_that_is_being_typed_is_no_answer() {
    for word in ["y", "a", "n"] {
        let mut chat = TestChat::new();
        chat.runs(1);
        chat.types("please do ");
        chat.asked(1);
        chat.now -= QUESTION_IS_READ;
        chat.types(word);
        assert_eq!(chat.handles(ChatEvent::Key(Key::Enter)), []);
        assert!(
            chat.line().ends_with(&format!("> please do {word}")),
            "{}",
            chat.line()
        );
        // After a quiet moment, the question can be answered, and the message is still there.
        chat.now += QUESTION_IS_READ;
        let said = chat.sends("not that");
        assert!(
            matches!(&said[..], [ChatEffect::Note(said)] if said.contains("back in your message"))
        );
        let above = chat.state.input_line(chat.now).unwrap().above;
        let draft = format!("  your message: please do {word}not that");
        assert_eq!(above, [Styled::from(draft.as_str())]);
        let answer = ChatEffect::Answer(1, PermissionAnswer::AllowOnce);
        assert_eq!(chat.sends("y"), [answer]);
        chat.handles(ChatEvent::QuestionOver(1));
        assert!(
            chat.line()
                .ends_with(&format!("> please do {word}not that"))
        );
    }
}

/// A user who presses a key to stop the turn does not want the next turn to begin.
#[test]
fn stop_by_a_key_takes_waiting_messages_back() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.sends("two");
    chat.sends("three");
    chat.types("half");
    let effects = chat.handles(ChatEvent::Key(Key::Escape));
    let [
        ChatEffect::Withdraw(numbers, _),
        ChatEffect::StopTurn(_),
        ChatEffect::Note(said),
    ] = effects.as_slice()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(numbers, &[2, 3]);
    assert!(said.contains("2 waiting messages"), "{said}");
    assert!(chat.line().ends_with("two\nthree\nhalf"), "{}", chat.line());
    assert_eq!(chat.handles(ChatEvent::Outcome(2)), []);
    assert_eq!(chat.handles(ChatEvent::Began(Some(3))), []);
    // A stop also covers a message without a turn.
    let mut chat = TestChat::new();
    chat.sends("one");
    chat.sends("two");
    let effects = chat.ctrl_c();
    assert!(matches!(&effects[..], [ChatEffect::Withdraw(numbers, _), ..] if numbers == &[2]));
}

#[test]
fn superseded_message_is_shown_without_an_answer() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.sends("two");
    chat.sends("three");
    let second = chat.handles(ChatEvent::Outcome(2));
    assert_eq!(second, [ChatEffect::ShowUnanswered("two".to_owned())]);
    chat.handles(ChatEvent::Outcome(1));
    let third = chat.handles(ChatEvent::Began(Some(3)));
    assert_eq!(third, [ChatEffect::ShowMessage("three".to_owned())]);
}

#[test]
fn a_steered_message_waits_until_the_turn_takes_it_and_is_shown_once() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.steers(2, "more");
    let above = &chat.state.input_line(chat.now).unwrap().above;
    assert_eq!(above, &[Styled::from("  after this step: more")]);
    assert_eq!(
        chat.handles(ChatEvent::Taken(2)),
        [ChatEffect::ShowSteered("more".to_owned())]
    );
    assert!(chat.state.input_line(chat.now).unwrap().above.is_empty());
    assert!(
        chat.state.shows(Some(1)),
        "the turn is still the first one's"
    );
    assert_eq!(chat.handles(ChatEvent::Outcome(2)), []);
    assert!(chat.state.shows(Some(1)));
}

/// A stop takes back a steered message, unless the turn has taken it.
#[test]
fn stop_by_a_key_takes_back_the_messages_that_the_turn_has_not_taken() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.steers(2, "taken");
    chat.handles(ChatEvent::Taken(2));
    chat.steers(3, "not taken");
    let effects = chat.handles(ChatEvent::Key(Key::Escape));
    assert!(matches!(&effects[..], [ChatEffect::Withdraw(numbers, _), ..] if numbers == &[3]));
    assert_eq!(chat.line(), "> not taken");
    assert_eq!(chat.handles(ChatEvent::Outcome(3)), []);
}

#[test]
fn what_is_refused_stands_on_the_line_again() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.sends("two");
    let why = "a turn runs".to_owned();
    let said = chat.handles(ChatEvent::Refused { message: 2, why });
    assert_eq!(said, [ChatEffect::Note("not sent: a turn runs".to_owned())]);
    assert_eq!(chat.line(), "> two");
}

#[test]
fn a_turn_that_background_work_caused_is_shown_and_stopped() {
    let mut chat = TestChat::new();
    assert_eq!(chat.handles(ChatEvent::Began(None)), []);
    assert!(chat.state.shows(None));
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::StopTurn(_)]));
    chat.handles(ChatEvent::TurnEnded(None));
    chat.now += END_TO_LEAVE;
    assert!(is_leave(&chat.ctrl_c()));
}

#[test]
fn what_was_typed_comes_back() {
    let mut chat = TestChat::new();
    chat.sends("one");
    chat.sends("/nonsense");
    chat.types("draft");
    chat.handles(ChatEvent::Key(Key::Up));
    assert_eq!(chat.line(), "> /nonsense");
    chat.handles(ChatEvent::Key(Key::Up));
    chat.handles(ChatEvent::Key(Key::Down));
    chat.handles(ChatEvent::Key(Key::Down));
    assert_eq!(chat.line(), "> draft");
}

#[test]
fn history_search_finds_substrings() {
    let mut chat = TestChat::new();
    chat.sends("one apple");
    chat.sends("two pears");
    chat.types("draft");
    chat.handles(ChatEvent::Key(Key::Search));
    chat.types("apple");
    assert_eq!(chat.line(), "  search: apple > one apple");
    chat.handles(ChatEvent::Key(Key::OpenEditor));
    assert_eq!(chat.line(), "> draft", "given up");
    chat.handles(ChatEvent::Key(Key::Search));
    chat.types("pear");
    let sent = chat.handles(ChatEvent::Key(Key::Enter));
    assert_eq!(sent, [ChatEffect::Send(3, "two pears".to_owned())]);
}

#[test]
fn ctrl_c_gives_a_search_up_before_it_leaves() {
    let mut chat = TestChat::new();
    chat.sends("/nonsense");
    chat.handles(ChatEvent::Key(Key::Search));
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::Note(_)]));
    assert_eq!(chat.line(), "> ");
    assert!(is_leave(&chat.later().ctrl_c()));
}

#[test]
fn a_command_is_completed_also_where_a_question_stands() {
    let mut chat = TestChat::new();
    let names = || CompletionNames {
        background: vec!["bg_1".to_owned()],
        ..CompletionNames::default()
    };
    chat.types("/stop b");
    assert_eq!(
        chat.handles(ChatEvent::Key(Key::Complete)),
        [ChatEffect::Complete]
    );
    chat.handles(ChatEvent::Names(names()));
    assert_eq!(chat.line(), "> /stop bg_1 ");
    chat.handles(ChatEvent::Key(Key::Home));
    chat.asked(1);
    chat.types("/po");
    chat.handles(ChatEvent::Names(names()));
    assert!(
        chat.line().ends_with("n REASON > /policy "),
        "{}",
        chat.line()
    );
    chat.handles(ChatEvent::QuestionOver(1));
    chat.handles(ChatEvent::Names(names()));
    assert_eq!(chat.line(), "> /stop bg_1 ", "the cursor is not at its end");
}

/// The user presses Ctrl-C twice, to stop and to force. If the stop ends before the second press, the second press does
/// not leave the chat.
#[test]
fn ctrl_c_right_after_a_quick_stop_does_not_leave() {
    let mut chat = TestChat::new();
    chat.runs(1);
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::StopTurn(_)]));
    chat.state.stop_begun(chat.now);
    chat.handles(ChatEvent::TurnEnded(Some(1)));
    chat.handles(ChatEvent::Outcome(1));
    chat.handles(ChatEvent::StopEnded);
    chat.later();
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::Note(_)]));
    chat.now += END_TO_LEAVE;
    assert!(is_leave(&chat.ctrl_c()));
}

/// The stop of a stubborn process tree can take longer than a second. So the time without leaving counts from the
/// receipt of the stop, and not from the press.
#[test]
fn ctrl_c_within_a_second_of_a_late_receipt_does_not_leave() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.ctrl_c();
    chat.state.stop_begun(chat.now);
    chat.now += GRACE + END_TO_LEAVE;
    assert_eq!(chat.ctrl_c(), [ChatEffect::Force]);
    chat.now += GRACE;
    chat.handles(ChatEvent::Outcome(1));
    chat.handles(ChatEvent::StopEnded);
    chat.now += END_TO_LEAVE.saturating_sub(ONE_SIGNAL);
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::Note(_)]));
    chat.later();
    assert!(is_leave(&chat.ctrl_c()));
}

mod questions;
