//! Text for a terminal: escaped, styled, and measured in columns.

pub(crate) mod escape;
mod rows;
mod style;
mod styled;
mod width;

pub(crate) use rows::{rows_of, without_tabs};
pub(crate) use style::{Environment, Style, Symbol, TextRole};
pub(crate) use styled::{Styled, styled};
pub(super) use width::{EMOJI_COLUMNS_MAX, is_doubtful, is_emoji, widest};
