//! Treatment of rows by terminals whose windows become narrower.

/// Treatment of rows by a terminal that becomes narrower.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Narrowing {
    /// It cuts them.
    #[default]
    Cuts,
    /// It breaks them into more rows.
    Breaks,
}
