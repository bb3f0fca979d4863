//! Text of an error with its causes.

use std::error::Error;

/// Formats an error with its causes, in one line. If the message of a cause only repeats the message of the error
/// above, omits the cause.
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
