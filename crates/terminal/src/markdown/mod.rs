//! Renders streamed answers for a terminal.
//!
//! [`AnswerStream`] takes the pieces of an answer, and returns each complete block once, as parts that the writer
//! thread breaks into rows. The incomplete block is in the live region (the changing rows below the text), and is drawn
//! again as the block grows. Completeness is decided line by line, so the result does not depend on the sizes of the
//! pieces.
//!
//! Every bound is a number of bytes. So a line of a megabyte, a table of a thousand rows or a code block of ten
//! thousand lines is neither kept in memory nor parsed repeatedly.

mod blocks;
mod code_block;
mod highlight;
mod inline;
mod long_table;
mod open_answer;
mod stream;
mod theme;

pub use stream::{AnswerFormat, AnswerStream};
