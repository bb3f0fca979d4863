//! Position of a scope: its index in its group, and its placement relative to its parent scope.

/// Index of a scope among the entries of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeIndex(pub(super) u32);

impl ScopeIndex {
    /// Index of the scope that the group was created for, above all other scopes of the group.
    pub(super) const FIRST: Self = Self(0);
}

/// Placement of a scope relative to its parent scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// In its own group, permanently. The scope is removed with its last handle.
    #[default]
    Fixed,
    /// In its own group. The scope can move below another scope later: see
    /// [`Scope::move_below`](crate::Scope::move_below).
    Movable,
    /// In the group of the parent scope, with a shared lock, signal and registry of work, until that group is dropped.
    /// For many short scopes that belong together, such as a turn and its calls: they cost less, and they end and are
    /// accounted for in one step. Close the scope when it has ended.
    Shared,
}
