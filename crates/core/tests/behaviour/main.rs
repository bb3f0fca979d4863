//! Behaviour of the turn engine: one test for each promise, named after it.
//!
//! `README.md` in this folder maps every behaviour of the specification to its test, here or in another crate.

mod bad_arguments;
mod batches;
mod budget;
mod cancel;
mod commit;
mod crash;
mod driver;
mod fold;
mod loops;
mod named_tests;
mod odd_names;
mod overflow;
mod property;
mod receipts;
mod timeouts;
