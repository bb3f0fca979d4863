//! Drivers: each makes runs, stops them, and hands what it observed to the checkers. None of them knows a rule.

pub mod by_kill;
pub mod by_moment;
pub mod by_point;
mod records;
pub mod soak;
