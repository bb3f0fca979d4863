//! JSON, the format of all values between Rust and Python.

use std::time::Duration;

use allstop::{Cause, CauseKind};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longer than any process runs, and short enough that no clock overflows.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Writes a value of Allstop.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("values of Allstop have names as keys")
}

/// Reads a value that Python has written.
pub(crate) fn value<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Reads the cause of a stop: its kind, and a detail.
pub(crate) fn cause(kind: &str, detail: Option<String>) -> PyResult<Cause> {
    let kind: CauseKind = serde_json::from_value(kind.into())
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let cause = Cause::new(kind).by("python");
    Ok(match detail {
        Some(detail) => cause.detail(detail),
        None => cause,
    })
}

/// Converts seconds of Python.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    // A longer time than any process runs, such as infinity.
    if seconds > NEVER.as_secs_f64() {
        return Ok(NEVER);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} seconds: {error}")))
}
