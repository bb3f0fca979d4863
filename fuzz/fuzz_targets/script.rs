//! Any text as a script for the model. The parser refuses the text with the position of the error, or the script plays
//! several turns and ends without a panic.
//!
//! The clock is paused, so a script may wait for a hundred years. If a script hangs on purpose, its call is dropped.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Message;
use allstop_model::{Model, ModelErrorKind, ModelEvent, ModelRequest, ScriptedModel};
use futures::StreamExt as _;
use libfuzzer_sys::fuzz_target;
use tokio::time::timeout;

/// Model calls for each script: enough for a few turns of a few steps.
const CALLS_MAX: usize = 6;
/// Time after which a call counts as hanging.
const PATIENCE: Duration = Duration::from_hours(1);

fuzz_target!(|text: &str| {
    let model = match ScriptedModel::parse("fuzz.yaml", text) {
        Ok(model) => model,
        Err(error) => {
            assert_eq!(error.kind, ModelErrorKind::Script);
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            return;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without drivers can be built");
    runtime.block_on(async {
        // The text of the script is also the message, so that `when` probably matches a word in it.
        let mut messages = vec![Arc::new(Message::user(text))];
        for _ in 0..CALLS_MAX {
            // A call that hangs is dropped, as a stop would do.
            let answered = timeout(PATIENCE, play(&model, &messages)).await;
            if !answered.unwrap_or(true) {
                return;
            }
            messages.push(Arc::new(Message::Assistant {
                text: "answered".into(),
                tool_calls: Vec::new(),
            }));
        }
    });
});

/// Plays one reply. Returns false if the script has no reply for these messages.
async fn play(model: &ScriptedModel, messages: &[Arc<Message>]) -> bool {
    let stream = match model.stream(ModelRequest::new(messages.to_vec())).await {
        Ok(stream) => stream,
        Err(error) => return error.kind != ModelErrorKind::Script,
    };
    let mut events = stream.events;
    let mut ended = false;
    while let Some(event) = events.next().await {
        assert!(!ended, "an event follows the end");
        ended = matches!(event, Ok(ModelEvent::End(_)) | Err(_));
    }
    assert!(ended, "a stream ends with its end marker or an error");
    true
}
