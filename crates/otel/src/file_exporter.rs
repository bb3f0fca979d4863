//! Exporter that writes spans to a file, as lines of JSON.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{Array, KeyValue, StringValue, Value as AttributeValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// A file for spans.
#[derive(Debug, Clone)]
pub struct TraceFile {
    /// Path of the file. A new file is readable only by its user.
    pub path: PathBuf,
    /// Name of the instrumentation scope of the spans.
    pub source: String,
    /// True if the spans contain texts of the conversation: prompts, answers, arguments and results.
    pub keeps_texts: bool,
}

/// Appends each span as one line.
#[derive(Debug)]
pub(crate) struct FileExporter {
    file: Mutex<File>,
    resource: Value,
}

impl FileExporter {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // The open of a pipe waits for a reader.
        if fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
            return Err(io::Error::other("it is a pipe: name a file"));
        }
        let mut options = OpenOptions::new();
        // The spans may contain texts of the conversation.
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            resource: json!({ "attributes": {} }),
        })
    }
}

impl SpanExporter for FileExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let mut lines = String::new();
        for span in &batch {
            lines += &described(span, &self.resource).to_string();
            lines.push('\n');
        }
        // The thread of the SDK exports one batch at a time.
        let written = self.file.lock().write_all(lines.as_bytes());
        written.map_err(|error| OTelSdkError::InternalFailure(error.to_string()))
    }

    fn set_resource(&mut self, resource: &Resource) {
        let attributes = resource
            .iter()
            .map(|(key, value)| (key.to_string(), json_of(value)));
        let attributes: Map<_, _> = attributes.collect();
        self.resource = json!({ "attributes": attributes });
    }
}

/// The span in the form that the SDKs of OpenTelemetry print.
fn described(span: &SpanData, resource: &Value) -> Value {
    let mut line = json!({
        "type": "span",
        "traceId": span.span_context.trace_id().to_string(),
        "spanId": span.span_context.span_id().to_string(),
        "name": span.name,
        "kind": kind_of(&span.span_kind),
        "startTime": time_of(span.start_time),
        "endTime": time_of(span.end_time),
        "attributes": attributes_of(&span.attributes),
        "status": status_of(&span.status),
        "instrumentationScope": { "name": span.instrumentation_scope.name() },
        "resource": resource,
    });
    if span.parent_span_id != SpanId::INVALID {
        line["parentSpanId"] = span.parent_span_id.to_string().into();
    }
    line
}

/// Number of the kind in the API of OpenTelemetry.
fn kind_of(kind: &SpanKind) -> u8 {
    match kind {
        SpanKind::Internal => 0,
        SpanKind::Server => 1,
        SpanKind::Client => 2,
        SpanKind::Producer => 3,
        SpanKind::Consumer => 4,
    }
}

/// Seconds and nanoseconds since 1970.
fn time_of(time: SystemTime) -> Value {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!([since.as_secs(), since.subsec_nanos()])
}

fn status_of(status: &Status) -> Value {
    match status {
        Status::Unset => json!({ "code": 0 }),
        Status::Ok => json!({ "code": 1 }),
        Status::Error { description } if description.is_empty() => json!({ "code": 2 }),
        Status::Error { description } => json!({ "code": 2, "message": description }),
    }
}

fn attributes_of(attributes: &[KeyValue]) -> Value {
    let attributes = attributes.iter();
    let attributes =
        attributes.map(|attribute| (attribute.key.to_string(), json_of(&attribute.value)));
    Value::Object(attributes.collect())
}

fn json_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Bool(value) => (*value).into(),
        AttributeValue::I64(value) => (*value).into(),
        AttributeValue::F64(value) => (*value).into(),
        AttributeValue::String(value) => value.as_str().into(),
        AttributeValue::Array(Array::String(values)) => {
            values.iter().map(StringValue::as_str).collect()
        }
        // Spans of agents have no other values.
        other => other.to_string().into(),
    }
}
