//! The parts of the test kit.

mod random_stops;
mod simulated;
mod stop_safe;
