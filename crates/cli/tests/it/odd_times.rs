//! Signals when nobody expects them, and outputs that nobody reads.

mod outputs;
mod scarcity;
mod signals;
