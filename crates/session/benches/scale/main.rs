//! Many sessions at once: what idle ones hold, how quickly they wake, and how quickly thousands of turns are stopped.
//! Each figure stands beside that of a bare loop of tokio tasks in the same run.
//!
//! `cargo bench -p allstop-session --bench scale`; `SESSIONS` and `TURNS` make it smaller.

#![expect(clippy::print_stdout, reason = "its figures are its output")]

mod idle;
mod measure;
mod models;
mod stopping;

fn main() {
    // `cargo bench` passes its own arguments on: there is nothing to choose here.
    idle::run(number("SESSIONS", 100_000));
    stopping::run(number("TURNS", 5_000));
}

fn number(variable: &str, otherwise: usize) -> usize {
    #[expect(clippy::disallowed_methods, reason = "a benchmark's own arguments")]
    let value = std::env::var(variable);
    value
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}
