//! Questions to the model outside the conversation.

use allstop_agent::PlainAnswerError;
use allstop_model::{Pause, Reply};
use allstop_session::{SessionOptions, SideQuestionError, StopTarget};

use crate::support::{agent, fixture, in_order, user};

#[tokio::test(start_paused = true)]
async fn side_question_sees_the_conversation_and_is_metered() {
    let model = in_order(vec![
        Reply::text("1"),
        Reply::text("aside").usage(10, 5),
        Reply::text("2"),
    ]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    fixture.session.send("a").unwrap().outcome().await;
    let before = fixture.state().await;
    assert_eq!(
        &*fixture.session.ask_aside("b".into()).await.unwrap(),
        "aside"
    );
    let asked = model.requests();
    assert_eq!(asked[1].messages.len(), 3, "the turn and the question");
    let after = fixture.state().await;
    assert_eq!(after.conversation(), before.conversation());
    let (before, after) = (before.metered(), after.metered());
    assert_eq!(after.input_tokens, before.input_tokens + 10);
    assert_eq!(after.output_tokens, before.output_tokens + 5);
    let next = fixture.session.send("c").unwrap().outcome().await;
    assert_eq!(&*next.output, "2");
    fixture.close().await;
}

/// A stop of the turn withdraws a question that waits for the turn, and a second question is refused meanwhile.
#[tokio::test(start_paused = true)]
async fn stop_of_the_turn_withdraws_a_waiting_question() {
    let model = in_order(vec![
        Reply::text("1").pause(Pause::Forever),
        Reply::text("aside"),
    ]);
    let fixture = fixture(agent(&model).build(), SessionOptions::default()).await;
    let turn = fixture.session.send("a").unwrap();
    // A question that arrives before the turn begins would precede the turn.
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let session = fixture.session.clone();
    let (asked, ()) = tokio::join!(fixture.session.ask_aside("b".into()), async {
        let second = session.ask_aside("c".into()).await;
        assert!(matches!(second, Err(SideQuestionError::Busy)), "{second:?}");
        let receipt = session.stop(&StopTarget::Turn, user()).receipt().await;
        assert!(receipt.quiet(), "{receipt:?}");
    });
    assert!(
        matches!(
            asked,
            Err(SideQuestionError::NoAnswer(PlainAnswerError::Stopped(_)))
        ),
        "{asked:?}"
    );
    drop(turn);
    let later = fixture.session.ask_aside("d".into()).await.unwrap();
    assert_eq!(&*later, "aside");
    fixture.close().await;
}
