//! Tests of the log through its public interface.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

mod broken;
mod conformance;
mod damage;
mod exchange;
mod files;
mod maintenance;
mod processes;
mod property;
mod random_damage;
mod reference;
mod replaced;
mod session;
mod session_end;
mod session_property;
mod unsteady;
