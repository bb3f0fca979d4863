//! Benchmarks with goals.
//!
//! A [`Figure`] is one thing that is measured: the product, beside as many baselines as its goals name. One round takes
//! a sample of each, in an order that turns around from round to round, so that whatever disturbs the machine disturbs
//! all of them. A figure prints one row for each of its goals: the medians, the minima, the goal and the verdict.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! use allstop_bench::{BenchSuite, Figure, each_of, timed};
//!
//! fn main() -> ExitCode {
//!     let mut suite = BenchSuite::from_args();
//!     // A sample times itself, so what it prepares before and drops afterwards is not in it.
//!     let sort = || {
//!         let mut numbers: Vec<u32> = (0..1_000).rev().collect();
//!         timed(|| numbers.sort()).0
//!     };
//!     // Work of less than about 100 µs is repeated within a sample.
//!     let copy = || each_of(100, || std::hint::black_box(vec![0_u32; 1_000]));
//!     suite.run(
//!         Figure::new("sort 1,000 numbers", sort)
//!             .rounds(200)
//!             .median_at_most(Duration::from_micros(50))
//!             .against("copy them", copy)
//!             .ratio_at_most(10.0),
//!     );
//!     // Something that is counted and not timed.
//!     suite.count("bytes of a number", size_of::<u32>() as f64, Some(4.0));
//!     suite.finish()
//! }
//! ```
//!
//! A crate's `Cargo.toml` takes `allstop-bench.workspace = true` as a development dependency, and each benchmark is a
//! `[[bench]]` with `harness = false`. `cargo bench -p CRATE --bench NAME -- WORD` runs the figures whose name contains
//! the word; `cargo xtask bench` runs all of all crates and ends with the goals that were missed. Where preparing a
//! figure is expensive, ask [`BenchSuite::wants`] first.

mod clock;
mod figure;
mod row;
mod suite;

pub use clock::{cpu_timed, each_of, timed};
pub use figure::Figure;
pub use suite::BenchSuite;
