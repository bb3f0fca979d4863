//! The parts of the test kit.

mod simulated;
