//! Answers as a terminal shows them while they stream.
//!
//! [`AnswerStream`] takes the pieces of an answer. Blocks that are complete leave it once, as parts that the writer
//! thread breaks into rows; the block that is not complete stands in the live region and is drawn again as it grows.
//! Completeness is decided line by line, so the pieces in which an answer arrives make no difference.
//!
//! Every bound is a number of bytes, so that one line of a megabyte, a table of a thousand rows or a code block of
//! ten thousand lines is neither kept in memory nor parsed again and again.

mod blocks;
mod code_block;
mod highlight;
mod inline;
mod long_table;
mod open_answer;
mod stream;
mod theme;

pub use stream::{AnswerFormat, AnswerStream};
