//! Signals at unexpected moments, and outputs without readers.

mod outputs;
mod scarcity;
mod signals;
