//! Text of an error with its causes.

use std::error::Error;

/// Formats an error with its causes, in one line. Omits a cause that repeats its parent's message.
pub fn error_chain(error: &dyn Error) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !last.ends_with(&cause) && !cause.ends_with(&last) {
            text += ": ";
            text += &cause;
        }
        last = cause;
        source = error.source();
    }
    text
}
