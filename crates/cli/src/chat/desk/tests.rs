//! Decisions, without a runtime and without a terminal.

use allstop_tools::PermissionAnswer;

use super::*;
use crate::chat::command::Target;
use crate::chat::complete::Names;
use crate::chat::keys::Key;
use crate::control::Control;
use crate::display::Styled;

const GRACE: Duration = Duration::from_secs(2);

struct Chat {
    desk: Desk,
    now: Instant,
}

impl Chat {
    fn new() -> Self {
        Self {
            desk: Desk::new(Past::in_memory(), Style::default(), Control::new(GRACE)),
            now: Instant::now(),
        }
    }

    fn hears(&mut self, event: Event) -> Vec<Effect> {
        self.desk.handle(event, self.now)
    }

    fn later(&mut self) -> &mut Self {
        self.now += ONE_PRESS;
        self
    }

    fn types(&mut self, text: &str) {
        for c in text.chars() {
            self.hears(Event::Key(Key::Letter(c)));
        }
    }

    fn sends(&mut self, text: &str) -> Vec<Effect> {
        self.types(text);
        self.hears(Event::Key(Key::Enter))
    }

    fn ctrl_c(&mut self) -> Vec<Effect> {
        self.hears(Event::Signal(Signal::Interrupt))
    }

    /// Sends a message, and its turn begins.
    fn runs(&mut self, number: MessageNumber) {
        let text = format!("message {number}");
        assert_eq!(self.sends(&text), [Effect::Send(number, text.clone())]);
        self.hears(Event::Taken {
            message: number,
            steers: false,
        });
        let shown = self.hears(Event::Began(Some(number)));
        assert_eq!(shown, [Effect::ShowMessage(text)]);
    }

    fn asked(&mut self, number: u64) {
        self.hears(Event::Asked(Ask {
            number,
            call: format!("call_{number}"),
            always: "shell: ls".to_owned(),
        }));
    }

    fn line(&self) -> String {
        let entry = self.desk.entry().expect("it is typed into");
        entry.prefix.shown().to_owned() + &entry.text
    }
}

fn is_leave(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Leave(_)])
}

#[test]
fn ctrl_c_stops_the_turn_and_then_forces() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.types("half");
    let stop = chat.ctrl_c();
    assert!(matches!(&*stop, [Effect::StopTurn(cause)] if cause.to_string() == "user (ctrl-c)"));
    chat.desk.stop_begun(chat.now);
    assert_eq!(chat.ctrl_c(), [], "one press is one");
    assert_eq!(chat.later().ctrl_c(), [Effect::Force]);
    chat.hears(Event::Outcome(1));
    assert_eq!(
        chat.later().ctrl_c(),
        [Effect::Force],
        "its receipt is not there yet"
    );
    chat.hears(Event::StopEnded);
    assert!(
        chat.line().ends_with("half"),
        "what was typed is still there"
    );
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_then_leaves() {
    let mut chat = Chat::new();
    chat.types("half");
    assert!(matches!(&*chat.ctrl_c(), [Effect::Note(said)] if said.contains("cleared")));
    assert_eq!(chat.line(), "> ");
    let left = chat.later().ctrl_c();
    assert_eq!(left, [Effect::Leave(None)]);
    assert!(chat.desk.entry().is_none());
}

#[test]
fn ctrl_c_covers_a_message_whose_turn_has_not_begun() {
    let mut chat = Chat::new();
    chat.sends("hello");
    assert!(matches!(&*chat.ctrl_c(), [Effect::StopTurn(_)]));
}

#[test]
fn ctrl_c_gives_up_a_wait_before_it_leaves() {
    let mut chat = Chat::new();
    chat.hears(Event::Waits(true));
    assert_eq!(chat.ctrl_c(), [Effect::GiveUpWait]);
    chat.hears(Event::Waits(false));
    assert!(is_leave(&chat.ctrl_c()));
}

#[test]
fn ctrl_d_leaves_only_an_empty_line() {
    let mut chat = Chat::new();
    chat.types("x");
    assert_eq!(chat.hears(Event::Key(Key::EndOfInput)), []);
    chat.hears(Event::Key(Key::Backspace));
    assert!(is_leave(&chat.hears(Event::Key(Key::EndOfInput))));
    assert_eq!(
        chat.hears(Event::Key(Key::Enter)),
        [],
        "nothing is read any more"
    );
}

#[test]
fn signals_leave_with_their_cause() {
    for (signal, cause, code) in [
        (Signal::Terminate, "shutdown (sigterm)", 143),
        (Signal::HangUp, "shutdown (sighup)", 129),
    ] {
        let mut chat = Chat::new();
        chat.runs(1);
        let left = chat.hears(Event::Signal(signal));
        assert!(matches!(&*left, [Effect::Leave(Some(said))] if said.to_string() == cause));
        assert!(
            chat.later()
                .hears(Event::Signal(Signal::Terminate))
                .is_empty()
        );
        let control = chat.desk.into_control();
        assert!(control.next_moment().is_some());
        assert_eq!(control.exit_code(control.stop_reason()), code);
    }
}

#[test]
fn a_terminal_that_is_gone_is_a_hang_up() {
    let mut chat = Chat::new();
    let left = chat.hears(Event::InputEnded);
    assert!(matches!(&*left, [Effect::Leave(Some(_))]));
}

#[test]
fn a_message_waits_above_the_line_until_its_turn_begins() {
    let mut chat = Chat::new();
    chat.runs(1);
    assert_eq!(chat.sends("next"), [Effect::Send(2, "next".to_owned())]);
    let entry = chat.desk.entry().unwrap();
    assert_eq!(entry.above, [Styled::from("  waits: next")]);
    assert!(chat.desk.shows(Some(1)) && !chat.desk.shows(Some(2)));
    chat.hears(Event::Outcome(1));
    let shown = chat.hears(Event::Began(Some(2)));
    assert_eq!(shown, [Effect::ShowMessage("next".to_owned())]);
    assert!(chat.desk.entry().unwrap().above.is_empty());
}

#[test]
fn nothing_of_a_superseded_message_is_shown_once_the_next_has_begun() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.sends("two");
    chat.hears(Event::Began(Some(2)));
    assert!(
        !chat.desk.shows(Some(1)),
        "what lags of the first is too late"
    );
    chat.hears(Event::Outcome(1));
    assert!(
        chat.desk.shows(Some(2)),
        "the first one's end is not the second's"
    );
    assert_eq!(chat.hears(Event::Began(Some(1))), [], "its turn is over");
    assert!(chat.desk.shows(Some(2)));
}

#[test]
fn of_three_in_quick_succession_the_second_is_shown_without_an_answer() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.sends("two");
    chat.sends("three");
    let second = chat.hears(Event::Outcome(2));
    assert_eq!(second, [Effect::ShowUnanswered("two".to_owned())]);
    chat.hears(Event::Outcome(1));
    let third = chat.hears(Event::Began(Some(3)));
    assert_eq!(third, [Effect::ShowMessage("three".to_owned())]);
}

#[test]
fn a_steered_message_is_shown_at_once_and_only_once() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.sends("more");
    let taken = Event::Taken {
        message: 2,
        steers: true,
    };
    assert_eq!(chat.hears(taken), [Effect::ShowSteered("more".to_owned())]);
    assert!(
        chat.desk.shows(Some(1)),
        "the turn is still the first one's"
    );
    assert_eq!(chat.hears(Event::Outcome(2)), []);
    assert!(chat.desk.shows(Some(1)));
}

#[test]
fn what_is_refused_stands_on_the_line_again() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.sends("two");
    let why = "a turn runs".to_owned();
    let said = chat.hears(Event::Refused { message: 2, why });
    assert_eq!(said, [Effect::Note("not sent: a turn runs".to_owned())]);
    assert_eq!(chat.line(), "> two");
}

#[test]
fn a_turn_that_background_work_caused_is_shown_and_stopped() {
    let mut chat = Chat::new();
    assert_eq!(chat.hears(Event::Began(None)), []);
    assert!(chat.desk.shows(None));
    assert!(matches!(&*chat.ctrl_c(), [Effect::StopTurn(_)]));
    chat.hears(Event::TurnEnded(None));
    chat.now += END_TO_LEAVE;
    assert!(is_leave(&chat.ctrl_c()));
}

#[test]
fn what_was_typed_comes_back() {
    let mut chat = Chat::new();
    chat.sends("one");
    chat.sends("/nonsense");
    chat.types("draft");
    chat.hears(Event::Key(Key::Up));
    assert_eq!(chat.line(), "> /nonsense");
    chat.hears(Event::Key(Key::Up));
    chat.hears(Event::Key(Key::Down));
    chat.hears(Event::Key(Key::Down));
    assert_eq!(chat.line(), "> draft");
}

#[test]
fn what_was_typed_is_found_by_what_it_contains() {
    let mut chat = Chat::new();
    chat.sends("one apple");
    chat.sends("two pears");
    chat.types("draft");
    chat.hears(Event::Key(Key::Search));
    chat.types("apple");
    assert_eq!(chat.line(), "  search: apple > one apple");
    chat.hears(Event::Key(Key::Cancel));
    assert_eq!(chat.line(), "> draft", "given up");
    chat.hears(Event::Key(Key::Search));
    chat.types("pear");
    let sent = chat.hears(Event::Key(Key::Enter));
    assert_eq!(sent, [Effect::Send(3, "two pears".to_owned())]);
}

#[test]
fn ctrl_c_gives_a_search_up_before_it_leaves() {
    let mut chat = Chat::new();
    chat.sends("/nonsense");
    chat.hears(Event::Key(Key::Search));
    assert!(matches!(&*chat.ctrl_c(), [Effect::Note(_)]));
    assert_eq!(chat.line(), "> ");
    assert!(is_leave(&chat.later().ctrl_c()));
}

#[test]
fn a_command_is_completed_also_where_a_question_stands() {
    let mut chat = Chat::new();
    let names = || Names {
        background: vec!["bg_1".to_owned()],
        ..Names::default()
    };
    chat.types("/stop b");
    assert_eq!(chat.hears(Event::Key(Key::Complete)), [Effect::Complete]);
    chat.hears(Event::Names(names()));
    assert_eq!(chat.line(), "> /stop bg_1 ");
    chat.hears(Event::Key(Key::Home));
    chat.asked(1);
    chat.types("/po");
    chat.hears(Event::Names(names()));
    assert!(chat.line().ends_with("[n]o > /policy "), "{}", chat.line());
    chat.hears(Event::QuestionOver(1));
    chat.hears(Event::Names(names()));
    assert_eq!(chat.line(), "> /stop bg_1 ", "the cursor is not at its end");
}

/// Two presses to stop and to force, of which the first was quick: the second does not leave.
#[test]
fn ctrl_c_right_after_a_quick_stop_does_not_leave() {
    let mut chat = Chat::new();
    chat.runs(1);
    assert!(matches!(&*chat.ctrl_c(), [Effect::StopTurn(_)]));
    chat.desk.stop_begun(chat.now);
    chat.hears(Event::TurnEnded(Some(1)));
    chat.hears(Event::Outcome(1));
    chat.hears(Event::StopEnded);
    chat.later();
    assert!(matches!(&*chat.ctrl_c(), [Effect::Note(_)]));
    chat.now += END_TO_LEAVE;
    assert!(is_leave(&chat.ctrl_c()));
}

/// The ladder of a stubborn tree takes longer than a second: the time counts from its receipt.
#[test]
fn ctrl_c_within_a_second_of_a_late_receipt_does_not_leave() {
    let mut chat = Chat::new();
    chat.runs(1);
    chat.ctrl_c();
    chat.desk.stop_begun(chat.now);
    chat.now += GRACE + END_TO_LEAVE;
    assert_eq!(chat.ctrl_c(), [Effect::Force]);
    chat.now += GRACE;
    chat.hears(Event::Outcome(1));
    chat.hears(Event::StopEnded);
    chat.now += END_TO_LEAVE.saturating_sub(ONE_PRESS);
    assert!(matches!(&*chat.ctrl_c(), [Effect::Note(_)]));
    chat.later();
    assert!(is_leave(&chat.ctrl_c()));
}

mod questions;
