//! Process containment.

fn main() {}
