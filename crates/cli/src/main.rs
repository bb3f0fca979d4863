//! The `allstop` command.
fn main() {}
