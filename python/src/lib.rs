//! The native module of the Python package `allstop`: a translation between the crate `allstop` and one event loop of
//! Python.
//!
//! `allstop/_bridge.py` is the other side. All values are JSON, except the objects that the event loop calls.
//!
//! Invariants:
//! 1. No thread of Rust runs code of Python: a thread sends a message to the `mailbox` of an event loop. So no thread of
//!    Rust waits for the lock of the interpreter, and a tool that holds this lock delays no stop.
//! 2. No function of this module waits, except those whose documentation contains a limit. They release the lock.

mod agent;
mod command;
mod events;
mod json;
mod mailbox;
mod model_call;
mod session;
mod stopping;
mod tool_call;

use pyo3::prelude::*;

/// The native part of the package `allstop`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::agent::{PythonAgent, PythonRun};
    #[pymodule_export]
    use super::command::PythonCommand;
    #[pymodule_export]
    use super::events::PythonEvents;
    #[pymodule_export]
    use super::mailbox::PythonMailbox;
    #[pymodule_export]
    use super::model_call::PythonModelCall;
    #[pymodule_export]
    use super::session::PythonSession;
    #[pymodule_export]
    use super::stopping::{PythonStop, receipt_text};
    #[pymodule_export]
    use super::tool_call::PythonToolCall;
}
