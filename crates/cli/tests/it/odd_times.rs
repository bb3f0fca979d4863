//! Signals at unexpected moments, outputs without readers, and missing resources.

mod outputs;
mod scarcity;
mod signals;
