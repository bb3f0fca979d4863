//! The parts of the test kit.

mod random_stops;
mod simulated;
mod soak;
mod stop_safe;
