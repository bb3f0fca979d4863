//! The parts of the test kit.

mod guide;
mod random_stops;
mod simulated;
mod stop_safe;
