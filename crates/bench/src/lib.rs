//! Benchmarks with goals.
//!
//! A [`Figure`] is one measured operation of the product, with a baseline for each comparison. In one round, the
//! product and each baseline get one sample. The order alternates from round to round, so that a disturbance of the
//! machine affects the product and the baselines in the same way. A figure prints one row for each goal: the medians,
//! the minima, the goal and the verdict.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! use allstop_bench::{BenchSuite, Figure, each_of, timed};
//!
//! fn main() -> ExitCode {
//!     let mut suite = BenchSuite::from_args();
//!     // A sample measures itself, so its preparation and its drops do not count.
//!     let sort = || {
//!         let mut numbers: Vec<u32> = (0..1_000).rev().collect();
//!         timed(|| numbers.sort()).0
//!     };
//!     // Repeat work of less than about 100 µs within a sample.
//!     let copy = || each_of(100, || std::hint::black_box(vec![0_u32; 1_000]));
//!     suite.run(
//!         Figure::new("sort 1,000 numbers", sort)
//!             .rounds(200)
//!             .median_at_most(Duration::from_micros(50))
//!             .against("copy them", copy)
//!             .ratio_at_most(10.0),
//!     );
//!     // A counted value instead of a measured time.
//!     suite.count("bytes of a number", size_of::<u32>() as f64, Some(4.0));
//!     suite.finish()
//! }
//! ```
//!
//! To write benchmarks, add `allstop-bench.workspace = true` to the development dependencies in the `Cargo.toml` of the
//! crate. Each benchmark is a `[[bench]]` with `harness = false`. `cargo bench -p CRATE --bench NAME -- WORD` runs the
//! figures whose name contains the word. `cargo xtask bench` runs all figures of all crates, and lists the missed goals
//! at the end. If the preparation of a figure is expensive, call [`BenchSuite::wants`] first.

mod clock;
mod figure;
mod row;
mod suite;

pub use clock::{cpu_timed, each_of, timed};
pub use figure::Figure;
pub use suite::BenchSuite;
