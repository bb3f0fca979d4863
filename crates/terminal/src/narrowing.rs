//! Treatment of rows by terminals whose windows become narrower.

/// Treatment of rows by a terminal that becomes narrower.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Narrowing {
    /// The terminal cuts the rows.
    #[default]
    Cuts,
    /// The terminal breaks the rows into more rows.
    Breaks,
}
