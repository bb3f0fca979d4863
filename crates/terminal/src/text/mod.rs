//! Text for a terminal: escaped, styled, and measured in columns.

pub mod escape;
mod rows;
mod style;
mod styled;
mod width;

pub(crate) use rows::rows_of;
pub use rows::without_tabs;
pub use style::{Environment, Style, Symbol, TextRole};
pub use styled::Styled;
pub(crate) use styled::{letters, styled};
pub(super) use width::{EMOJI_COLUMNS_MAX, is_doubtful, is_emoji, widest};
