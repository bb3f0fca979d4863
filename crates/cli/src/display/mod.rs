//! What people and programs see: styles, receipts, the live view, the stream of JSON, and the threads that write.
//!
//! Nothing here may hold the process up: everything goes through an [`Output`], whose threads alone write, and whose
//! [`Output::flush`] waits no longer than it is told. Nothing that others wrote may drive a terminal: a [`Lane`] takes
//! [`Styled`] text, answers and JSON, and makes each of them harmless.

pub(crate) mod escape;
#[cfg(test)]
mod hostile_tests;
mod json_stream;
mod live;
mod receipt;
#[cfg(test)]
pub(crate) mod screen;
mod style;
mod styled;
mod table;
mod watch;
mod width;
mod words;
mod writer;

pub(crate) use json_stream::JsonStream;
pub(crate) use live::{Live, LiveOptions};
pub(crate) use receipt::{RECEIPT_WIDTH_DEFAULT, is_worth_showing, render_receipt};
pub(crate) use style::{Environment, Role, Style, Symbol};
pub(crate) use styled::{Styled, styled};
pub(crate) use table::Table;
pub(crate) use watch::Watcher;
pub(crate) use words::{age, call as call_label, found as found_in_words, plain};
pub(crate) use writer::{Entry, Flush, Flushed, Keep, Lane, Output};
