//! Records a model's answers as a script that can be played again.
//!
//! A recording contains the model calls in the order of their starts. For each model call it contains the pieces of the
//! answer, the pauses between the pieces, the complete tool calls, the usage, the end, and the failure. If a call was
//! dropped, the recording contains the call up to the drop. When the script is played, the call hangs at this point.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use allstop_core::message::Arguments;
use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_saphyr::{Location, Spanned};
use tokio::time::Instant;

use crate::scripted::ReplyOrder;
use crate::scripted::file::{
    ErrorAt, ScriptCall, ScriptChunk, ScriptError, ScriptFile, ScriptReply, ScriptUsage, StallAt,
};
use crate::{Model, ModelError, ModelEvent, ModelEvents, ModelRequest, ModelStream};
use allstop_core::HumanDuration;

/// First words of every recording.
pub const RECORDING_BEGINNING: &str = "# Recorded";

/// Shortest pause that is recorded. If pieces follow each other faster, they are merged, because a script counts in
/// milliseconds.
const SAME_PIECE: Duration = Duration::from_millis(1);

/// A model that records the answers of another model.
#[derive(Debug)]
pub struct RecordingModel {
    inner: Arc<dyn Model>,
    path: PathBuf,
    replies: Replies,
}

type Replies = Arc<Mutex<Vec<ScriptReply>>>;

impl RecordingModel {
    /// Creates a model that records the answers of `inner`. Only [`RecordingModel::save`] writes the file.
    pub fn new(inner: Arc<dyn Model>, path: impl Into<PathBuf>) -> Self {
        Self {
            inner,
            path: path.into(),
            replies: Arc::default(),
        }
    }

    /// Path of the script.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the recording so far, completely or not at all: writes a temporary file, which then replaces the script.
    /// This method may block. You may call it more than once, even after a stop.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. In this case an existing file does not change.
    pub fn save(&self) -> io::Result<()> {
        let replies = self.replies.lock().clone();
        let spanned = |reply| Spanned::new(reply, Location::UNKNOWN, Location::UNKNOWN);
        let file = ScriptFile {
            order: ReplyOrder::Calls,
            turns: Vec::new(),
            replies: replies.into_iter().map(spanned).collect(),
        };
        let script = serde_saphyr::to_string(&file).map_err(io::Error::other)?;
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(
            temporary,
            "{RECORDING_BEGINNING} from {}.",
            self.inner.name().escape_debug()
        )?;
        temporary.write_all(script.as_bytes())?;
        temporary.as_file().sync_all()?;
        temporary.persist(&self.path)?;
        Ok(())
    }
}

impl Model for RecordingModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        self.inner.check(request)
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let call = RecordingCall::begin(&self.replies);
        Box::pin(async move {
            match self.inner.stream(request).await {
                Ok(stream) => {
                    call.edit(|reply| reply.stall = Some(StallAt::FirstToken));
                    Ok(ModelStream::new(RecordingStream {
                        events: stream.events,
                        call,
                    }))
                }
                Err(error) => {
                    call.fail(&error, ErrorAt::Start);
                    Err(error)
                }
            }
        })
    }
}

/// A call that is being recorded. Its reply is valid at any time, and describes the call as if it were dropped at this
/// moment.
struct RecordingCall {
    replies: Replies,
    number: usize,
    newest: Instant,
}

impl RecordingCall {
    fn begin(replies: &Replies) -> Self {
        let mut list = replies.lock();
        list.push(ScriptReply {
            stall: Some(StallAt::Connect),
            ..ScriptReply::default()
        });
        let number = list.len() - 1;
        drop(list);
        Self {
            replies: Arc::clone(replies),
            number,
            newest: Instant::now(),
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut ScriptReply)) {
        if let Some(reply) = self.replies.lock().get_mut(self.number) {
            edit(reply);
        }
    }

    fn fail(&self, error: &ModelError, at: ErrorAt) {
        self.edit(|reply| {
            reply.stall = None;
            reply.error = Some(ScriptError {
                kind: Some(error.kind),
                message: Some(error.message.clone()),
                retry_after: error.retry_after.map(HumanDuration),
                at,
                ..ScriptError::default()
            });
        });
    }

    fn take(&mut self, event: &ModelEvent) {
        let after = self.newest.elapsed();
        if !matches!(event, ModelEvent::ToolCallProgress { .. }) {
            self.newest += after;
        }
        let written = (after >= SAME_PIECE).then_some(HumanDuration(after));
        self.edit(|reply| match event {
            ModelEvent::Text(text) => {
                reply.stall = Some(StallAt::End);
                push(&mut reply.chunks, written, text, |chunk| &mut chunk.text);
            }
            ModelEvent::Reasoning(text) => {
                reply.stall = Some(StallAt::End);
                push(&mut reply.chunks, written, text, |chunk| {
                    &mut chunk.reasoning
                });
            }
            ModelEvent::ToolCallProgress { .. } => {}
            ModelEvent::ToolCall(call) => {
                reply.stall = Some(StallAt::End);
                let (arguments, malformed_arguments) = match &call.arguments {
                    Arguments::Json(value) => (Some(serde_json::Value::clone(value)), None),
                    Arguments::Malformed(text) => (None, Some(text.to_string())),
                };
                reply.calls.push(ScriptCall {
                    after: written,
                    tool: call.name.to_string(),
                    arguments,
                    malformed_arguments,
                    id: Some(call.id.as_str().to_owned()),
                });
            }
            ModelEvent::Usage(usage) => {
                let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
                reply.usage = Some(ScriptUsage {
                    input_tokens,
                    output_tokens,
                });
            }
            ModelEvent::End(reason) => {
                reply.stall = None;
                reply.finish = Some(*reason);
            }
        });
    }
}

/// Adds a piece. If there was no pause after the last piece, extends the last piece instead.
fn push(
    chunks: &mut Vec<ScriptChunk>,
    after: Option<HumanDuration>,
    text: &str,
    field: impl Fn(&mut ScriptChunk) -> &mut Option<String>,
) {
    if after.is_none()
        && let Some(newest) = chunks.last_mut()
        && let Some(so_far) = field(newest)
    {
        so_far.push_str(text);
        return;
    }
    let mut chunk = ScriptChunk {
        after,
        ..ScriptChunk::default()
    };
    *field(&mut chunk) = Some(text.to_owned());
    chunks.push(chunk);
}

/// Records the events of a stream and passes them on.
struct RecordingStream {
    events: ModelEvents,
    call: RecordingCall,
}

impl Stream for RecordingStream {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let item = ready!(this.events.as_mut().poll_next(cx));
        match &item {
            Some(Ok(event)) => this.call.take(event),
            Some(Err(error)) => this.call.fail(error, ErrorAt::End),
            None => {}
        }
        Poll::Ready(item)
    }
}
