//! Tests of the runtime.

fn main() {}
