//! Place of a scope: its seat in its cell, and its placement below the scope that it is made in.

/// The place of one scope among the entries of its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat(pub(super) u32);

impl Seat {
    /// Seat of the scope that the cell was made for, above all others there.
    pub(super) const FIRST: Self = Self(0);
}

/// Place of a scope below the one that it is made in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// In its own cell, for good. The scope is gone with its last handle.
    #[default]
    Fixed,
    /// In its own cell, and it may move below another scope later: see [`Scope::move_below`](crate::Scope::move_below).
    Movable,
    /// In the cell of the scope above: with one lock, one signal and one registry of work, for as long as that cell
    /// lives. For many short scopes that belong together, such as a turn and its calls: they cost less, and they end
    /// and are accounted for in one step. Close the scope when it has ended.
    Shared,
}
