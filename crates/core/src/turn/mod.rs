//! The turn engine.
