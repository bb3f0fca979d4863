//! Tests of permission questions, and of the text that is typed while a question is open.

use super::*;

#[test]
fn a_question_is_answered_once_and_the_draft_comes_back() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.types("yes, and");
    chat.asked(1);
    assert_eq!(
        chat.line(),
        "  [y]es, once  [a]lways, this session: shell: ls  [n]o, or n REASON > "
    );
    assert_eq!(chat.handles(ChatEvent::Key(Key::Enter)), [], "no answer");
    assert!(matches!(&*chat.sends("sure"), [ChatEffect::Note(_)]));
    assert_eq!(
        chat.sends("y"),
        [ChatEffect::Answer(1, PermissionAnswer::AllowOnce)]
    );
    assert_eq!(chat.line(), "> yes, andsure");
}

#[test]
fn withdrawn_question_discards_its_typed_answer() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    chat.asked(2);
    chat.types("a");
    chat.handles(ChatEvent::QuestionOver(1));
    chat.now += QUESTION_IS_READ;
    assert!(
        chat.line().ends_with("[n]o, or n REASON > "),
        "the next one, unanswered"
    );
    assert!(matches!(&*chat.ctrl_c(), [ChatEffect::StopTurn(_)]));
    chat.handles(ChatEvent::QuestionOver(2));
    assert_eq!(chat.line(), "> ");
}

/// Regression: keys typed together with `fg`, or while an editor was open, answered the question.
#[test]
fn keys_before_the_user_sees_the_question_again_are_no_answer() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    chat.now += QUESTION_IS_READ;
    chat.handles(ChatEvent::CameBack);
    chat.types("y");
    assert_eq!(chat.handles(ChatEvent::Key(Key::Enter)), []);
}

/// Regression: a stop closed the question, and the reason that the user was typing was lost.
#[test]
fn a_reason_returns_to_the_message_if_its_question_closes() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    chat.types("n use the other");
    chat.handles(ChatEvent::QuestionOver(1));
    assert_eq!(chat.line(), "> n use the other");
}

#[test]
fn commands_work_where_a_question_stands() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    let effects = chat.sends("/stop");
    let stop = ChatCommand::Stop(TypedTarget::Turn);
    assert_eq!(
        effects,
        [
            ChatEffect::ShowCommand("/stop".to_owned()),
            ChatEffect::RunCommand(stop)
        ]
    );
}

const HELD: &str = "no question is open: Enter sends it as a message";

/// The user types an answer just after the question was closed. The first Enter must not send this answer as a message.
#[test]
fn an_answer_that_comes_too_late_is_no_message_at_once() {
    for word in ["y", "Yes", "a", "n", "no", "always", "no, not that", "v"] {
        let mut chat = TestChat::new();
        chat.runs(1);
        chat.asked(1);
        chat.handles(ChatEvent::QuestionOver(1));
        assert_eq!(chat.sends(word), [ChatEffect::Note(HELD.to_owned())]);
        assert_eq!(chat.line(), format!("> {word}"), "it stays on the line");
        let sent = chat.handles(ChatEvent::Key(Key::Enter));
        assert_eq!(sent, [ChatEffect::Send(2, word.to_owned())]);
    }
}

#[test]
fn an_answer_that_is_given_twice_is_held_back_too() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    assert_eq!(
        chat.sends("y"),
        [ChatEffect::Answer(1, PermissionAnswer::AllowOnce)]
    );
    assert_eq!(chat.sends("y"), [ChatEffect::Note(HELD.to_owned())]);
}

#[test]
fn what_is_no_late_answer_is_sent() {
    let mut chat = TestChat::new();
    chat.runs(1);
    assert_eq!(chat.sends("y"), [ChatEffect::Send(2, "y".to_owned())]);
    chat.asked(1);
    chat.handles(ChatEvent::QuestionOver(1));
    let text = "yes, and";
    assert_eq!(chat.sends(text), [ChatEffect::Send(3, text.to_owned())]);
    chat.now += Duration::from_secs(2);
    assert_eq!(chat.sends("y"), [ChatEffect::Send(4, "y".to_owned())]);
}

#[test]
fn of_several_questions_the_one_that_is_answered_is_named() {
    let mut chat = TestChat::new();
    chat.runs(1);
    chat.asked(1);
    assert_eq!(
        chat.line(),
        "  [y]es, once  [a]lways, this session: shell: ls  [n]o, or n REASON > "
    );
    chat.asked(2);
    let first = "  call_1: [y]es, once  [a]lways, this session: shell: ls  [n]o, or n REASON > ";
    assert_eq!(chat.line(), first);
    // Regression: a second answer without a pause allowed the second call, whose prompt had just appeared.
    let answer = ChatEffect::Answer(1, PermissionAnswer::AllowOnce);
    assert_eq!(chat.sends("y"), [answer]);
    chat.handles(ChatEvent::QuestionOver(1));
    assert_eq!(chat.sends("y"), []);
    chat.now += QUESTION_IS_READ;
    assert_eq!(
        chat.line(),
        "  call_2: [y]es, once  [a]lways, this session: shell: ls  [n]o, or n REASON > "
    );
}

#[test]
fn denials_have_a_reason_and_long_questions_have_pages() {
    let mut chat = TestChat::new();
    chat.runs(1);
    for (typed, reason) in [
        ("n use the other file", "use the other file"),
        ("No, use\u{a0}it", "use\u{a0}it"),
        ("no: y", "y"),
    ] {
        chat.asked(1);
        let deny = PermissionAnswer::deny_because(reason);
        assert_eq!(chat.sends(typed), [ChatEffect::Answer(1, deny)], "{typed}");
        chat.now += Duration::from_secs(3);
    }
    chat.asked(1);
    assert_eq!(chat.sends("v"), [ChatEffect::ShowMore(1)]);
    for other in ["not now", "y because", "now", "yes, and"] {
        let effects = chat.sends(other);
        assert!(matches!(&*effects, [ChatEffect::Note(_)]), "{other}");
    }
    let deny = ChatEffect::Answer(1, PermissionAnswer::deny());
    assert_eq!(chat.sends("n "), [deny]);
}
