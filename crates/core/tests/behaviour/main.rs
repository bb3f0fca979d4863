//! Behaviour of the turn engine. Each promise has one test, whose name describes the promise.
//!
//! `README.md` in this folder lists the test for every behaviour of the specification. The test may be in another
//! crate.

mod background_effects;
mod bad_arguments;
mod batches;
mod budget;
mod cancel;
mod commit;
mod crash;
mod driver;
mod effects;
mod fold;
mod images;
mod loops;
mod named_tests;
mod odd_names;
mod overflow;
mod property;
mod receipts;
mod timeouts;
