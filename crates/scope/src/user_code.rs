//! Calls of code that the embedding program provides.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function of the embedding program. If the function panics, logs an error with its `name` and the message,
/// and returns `None`.
pub fn catch_panic<T>(name: &str, code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(panic) => {
            let message = panic_message(&*panic);
            tracing::error!(%message, "`{name}` of the embedding program panicked");
            None
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
