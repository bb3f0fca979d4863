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
    /// The scope has its own group and cannot be moved. The scope is removed with its last handle.
    #[default]
    Fixed,
    /// The scope has its own group. The scope can later be moved below another scope: see
    /// [`Scope::move_below`](crate::Scope::move_below).
    Movable,
    /// The scope is in the group of the parent scope. The scope shares the group's lock, signal and registry of work,
    /// and exists until the group is dropped. Use this placement for many short scopes that belong together, such as a
    /// turn and its calls. Such scopes cost less, and a stop of all of them ends and lists them in one step. Close the
    /// scope when its purpose has ended.
    Shared,
}
