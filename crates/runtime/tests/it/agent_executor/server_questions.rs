//! Questions of MCP servers during a turn, which give its task the state `input_required`.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_core::ids::QuestionId;
use allstop_model::Reply;
use allstop_session::AnswerResult;
use allstop_task::model::{JsonMap, MessagePart, PartContent};
use allstop_task::{Task, TaskState};
use allstop_testkit::ToolFn;
use allstop_tools::server_question::FormField;
use allstop_tools::{FormAnswer, ServerQuestion, ToolInvocation, WantedInput};
use serde_json::{Value, json};

use super::support::{AgentTasks, TestAgents, answer, status_text};

/// Asks for a name and an age, and returns the answer as text.
async fn ask(call: ToolInvocation) -> String {
    let prompter = call.link.prompter().expect("the call belongs to a session");
    let field = |name: &str, kind: &str| {
        let schema = json!({ "type": kind });
        FormField::of(name, &schema, true).expect("it can be typed")
    };
    let question = ServerQuestion {
        session_id: call.session_id.clone(),
        call_id: call.call_id.clone(),
        server: "crm".into(),
        message: "Who is it?".into(),
        wanted: WantedInput::Form(vec![field("name", "string"), field("age", "integer")]),
    };
    tokio::select! {
        answer = prompter.answer_server(question) => format!("{answer:?}"),
        cause = call.scope.stopped_at("question") => cause.to_string(),
    }
}

/// A task whose calls have asked their questions.
async fn asking(calls: usize) -> (AgentTasks, Arc<Task>) {
    let calls = (0..calls).fold(Reply::text(""), |reply, _| reply.call("ask", json!({})));
    let agents = TestAgents::new(vec![calls, Reply::text("done")]);
    let agents = TestAgents {
        asks: true,
        ..agents.tools(|_| vec![ToolFn::new("ask", ask).effect(allstop_core::Effect::ReadOnly)])
    };
    let tasks = AgentTasks::new(agents).await;
    let task = tasks.run("m1", "Do it").await;
    assert_eq!(task.status.state, TaskState::InputRequired);
    (tasks, task)
}

fn data(value: Value, id: Option<&str>) -> MessagePart {
    let id = id.map(|id| ("question_id".to_owned(), id.into()));
    MessagePart {
        content: PartContent::Data(value),
        metadata: JsonMap::from_iter(id),
        ..MessagePart::text("")
    }
}

/// Data of the questions in the message of a task.
fn questions(task: &Task) -> Vec<Value> {
    let message = task.status.message.as_ref().expect("it asks");
    let data = message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Data(data) => Some(json!({ "data": data, "metadata": part.metadata })),
        _ => None,
    });
    data.collect()
}

async fn reply(tasks: &AgentTasks, id: &TaskId, message: &str, part: MessagePart) -> Arc<Task> {
    let mut replied = tasks.reply_with(id, message, vec![part]).await;
    tasks.rest(&mut replied).await
}

#[tokio::test(start_paused = true)]
async fn data_of_the_next_message_fills_in_the_form() {
    let (tasks, task) = asking(1).await;
    let asked = questions(&task);
    assert_eq!(
        asked,
        [json!({
            "data": {
                "server": "crm",
                "mode": "form",
                "message": "Who is it?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name", "age"],
                },
            },
            "metadata": {"question_id": "form_1", "mcp_server": "crm", "call_id": "call_1_1"},
        })]
    );
    let text = status_text(&task);
    assert!(text.contains("`crm` asks: Who is it?"), "{text}");
    // The question stays open until the client answers, without a time limit.
    tokio::time::sleep(std::time::Duration::from_hours(2)).await;
    let values = json!({"action": "accept", "content": {"name": "Ada", "age": 36}});
    let task = reply(&tasks, &task.id, "m2", data(values, None)).await;
    assert_eq!(answer(&task), "done");
    let seen = tasks.last_request();
    assert!(seen.contains("Accept") && seen.contains("Ada"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn client_is_asked_again_after_an_invalid_answer() {
    let (tasks, task) = asking(1).await;
    let values = json!({"action": "accept", "content": {"name": "Ada", "age": "old"}});
    let task = reply(&tasks, &task.id, "m2", data(values, None)).await;
    assert_eq!(task.status.state, TaskState::InputRequired);
    let text = status_text(&task);
    assert!(text.contains("not valid (`age`: a whole number)"), "{text}");
    let task = reply(&tasks, &task.id, "m3", MessagePart::text("decline")).await;
    assert_eq!(answer(&task), "done");
    let seen = tasks.last_request();
    assert!(seen.contains("Decline"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn parallel_questions_are_answered_by_their_ids() {
    let (tasks, task) = asking(2).await;
    assert_eq!(questions(&task).len(), 2);
    let decline = || json!({"action": "decline"});
    // Without an id, no question is answered.
    let task = reply(&tasks, &task.id, "m2", data(decline(), None)).await;
    assert_eq!(questions(&task).len(), 2);
    let task = reply(&tasks, &task.id, "m3", data(decline(), Some("form_2"))).await;
    let left = questions(&task);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["question_id"], "form_1");
    let cancel = json!({"action": "cancel"});
    let task = reply(&tasks, &task.id, "m4", data(cancel, Some("form_1"))).await;
    assert_eq!(answer(&task), "done");
    let seen = tasks.last_request();
    assert!(
        seen.contains("Decline") && seen.contains("Cancel"),
        "{seen}"
    );
}

#[tokio::test(start_paused = true)]
async fn cancel_of_the_task_withdraws_the_question() {
    let (tasks, task) = asking(1).await;
    let outcome = tasks.cancel(&task.id).await;
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet(), "{:?}", outcome.receipt);
    let session = tasks.session();
    assert!(session.server_questions().is_empty());
    let late = session.answer_server(&QuestionId::from("form_1"), FormAnswer::Decline);
    assert_eq!(late, AnswerResult::TooLate);
}
