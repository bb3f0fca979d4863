//! Many concurrent sessions: memory of idle sessions, time to wake one idle session, and time to stop thousands of
//! turns. Each figure is printed next to the figure of a bare loop of Tokio tasks in the same run.
//!
//! `cargo bench -p allstop-session --bench scale`; `SESSIONS` and `TURNS` reduce the numbers.

#![expect(clippy::print_stdout, reason = "its figures are its output")]

mod idle;
mod measure;
mod models;
mod stopping;

fn main() {
    // `cargo bench` passes arguments, which this benchmark ignores.
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
