//! Messages that a stopped turn leaves in the conversation under the policy `keep`, so that the model can continue.

use allstop_agent::{AgentEvent, EventSink, RunRequest, Settings};
use allstop_core::message::check_history;
use allstop_core::receipt::ConversationEffect;
use allstop_core::turn::StopPolicy;
use allstop_core::{Message, StopReason};
use allstop_model::{Pause, Reply};
use allstop_tools::ToolInvocation;
use futures::future::BoxFuture;

use crate::stops::{deaf, hears, in_two_tools, user};
use crate::{agent, ended, history, model, root, settings};

fn stopping(stop_policy: StopPolicy) -> Settings {
    settings().stop_policy(stop_policy)
}

#[tokio::test(start_paused = true)]
async fn keep_commits_completed_steps_with_one_result_per_call() {
    let (run, _, _) = in_two_tools(stopping(StopPolicy::Keep), [hears, deaf]).await;
    let stop = run.stop(user());
    let (turn, _) = ended(run.finish().await.unwrap());
    assert_eq!(turn.stop_reason, StopReason::Cancelled);
    let messages = &turn.conversation.messages;
    check_history(messages.iter().map(AsRef::as_ref)).unwrap();
    assert!(matches!(&*messages[0], Message::User { text, .. } if &**text == "go"));
    assert!(matches!(
        &**messages.last().unwrap(),
        Message::StopMarker { .. }
    ));
    assert_eq!(
        messages.len(),
        7,
        "user, step, result, step, two results, marker"
    );
    let receipt = turn.receipt.unwrap();
    assert_eq!(
        receipt.conversation(),
        ConversationEffect::KeptCompletedSteps
    );
    // The caller of the stop also receives the effect and the usage.
    assert_eq!(stop.receipt().await, receipt);
    assert!(receipt.usage().output_tokens > 0);
}

fn speaks_and_hears(call: ToolInvocation) -> BoxFuture<'static, String> {
    Box::pin(async move {
        call.link.output("compiling 3 of 7\n");
        hears(call).await
    })
}

/// The next message contains the information that the model needs to continue: the stopped call, and its output until
/// the stop.
#[tokio::test(start_paused = true)]
async fn keep_records_the_output_of_a_stopped_call() {
    let (run, _, _) = in_two_tools(stopping(StopPolicy::Keep), [speaks_and_hears, hears]).await;
    let _stop = run.stop(user());
    let (turn, _) = ended(run.finish().await.unwrap());
    let Message::Tool(result) = &*turn.conversation.messages[4] else {
        panic!("{:?}", turn.conversation.messages);
    };
    for said in [
        "Stopped before it had a result",
        "Nothing of it runs any more.",
        "Its output until then:\ncompiling 3 of 7",
    ] {
        assert!(result.content.contains(said), "{said}: {}", result.content);
    }
}

/// The marker contains the beginning of the answer that a person has seen. The beginning is not a message of the model,
/// because such a message is always complete.
#[tokio::test(start_paused = true)]
async fn keep_leaves_the_partial_answer() {
    for (policy, expected) in [(StopPolicy::Keep, 2), (StopPolicy::Rollback, 0)] {
        let model = model(vec![Reply::text("Half an ans").pause(Pause::Forever)]);
        let (sink, mut events) = EventSink::channel();
        let request = RunRequest::new(history().await, "go");
        let agent = agent(&model).settings(stopping(policy));
        let run = agent.build().start(&root(), request, sink);
        while !matches!(events.recv().await.unwrap(), AgentEvent::TextDelta { .. }) {}
        let _stop = run.stop(user());
        let (turn, _) = ended(run.finish().await.unwrap());
        let messages = &turn.conversation.messages;
        assert_eq!(messages.len(), expected, "{messages:?}");
        if let Some(message) = messages.get(1) {
            let Message::StopMarker { text } = &**message else {
                panic!("{messages:?}");
            };
            let said = " Your answer had begun with:\nHalf an ans";
            assert!(text.ends_with(said), "{text}");
            check_history(messages.iter().map(AsRef::as_ref)).unwrap();
        }
    }
}
