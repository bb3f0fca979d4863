//! The parts of the test kit.

mod simulated;
mod stop_safe;
