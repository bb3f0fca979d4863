//! Scopes: work that can be stopped at any moment and answers with a true receipt.

/// placeholder
#[derive(Debug, Clone)]
pub struct Scope;
