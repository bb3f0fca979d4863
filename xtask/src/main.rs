//! `cargo xtask`: all commands for developers.
//!
//! There is one file per subcommand, and each of these files has a function `run`. [`exec`] starts programs, and
//! [`workspace`] returns paths. The program is small and has few dependencies, because it is built before everything
//! else.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use std::process::ExitCode;

mod bench;
mod book;
mod copilot_suite;
mod crate_order;
mod dist;
mod documented_commands;
mod documents;
mod exec;
mod explore;
mod facade;
mod gates;
mod language;
mod links;
mod minimal;
mod mutants;
mod packages;
mod parts;
mod picture;
mod python;
mod sources;
mod test;
mod texts;
mod wheel;
mod workspace;

const HELP: &str = "\
Developer commands of this repository.

    cargo xtask test             everything that must pass before a commit lands: gates, then tests
    cargo xtask test ARGS...     only tests, chosen by ARGS of `cargo nextest run`:
                                   cargo xtask test -p allstop-scope        one crate
                                   cargo xtask test ladder                  names that contain a word
                                   cargo xtask test ladder --no-capture     and show what they print
    cargo xtask gates            format, sources, language, crate order, links, licences, clippy, docs; no tests
    cargo xtask sources          type names, doc lines, import cycles and structs that will grow
    cargo xtask language         phrases, long sentences and spelling in comments and documents
    cargo xtask texts            all that the program prints, in one listing: help, messages, snapshots
    cargo xtask minimal          checks the binary alone, with its features and without, which compiles dependencies again
    cargo xtask book             the book, from docs/SUMMARY.md, in target/book/html
    cargo xtask dist             the files of a release: tarball, package for Debian, bill of materials, checksums
                                   cargo xtask dist --check         makes them of the debug binary, and installs them
    cargo xtask parts            fetch what tests need from outside and print where it is
    cargo xtask picture          draws the picture in the README again, from a run at a terminal; a test compares it
    cargo xtask explore ARGS...  stops an agent at every point of every scenario, in every way:
                                   cargo xtask explore --kill               kills processes too
                                   cargo xtask explore --faults             makes each system call on the store fail
                                   cargo xtask explore --help               the rest
    cargo xtask python           the tests of the Python package, with the wheel in a virtual environment
    cargo xtask wheel            builds the wheel of the Python package for users, with the binary
    cargo xtask bench [ARGS...]  the benchmarks, a verdict for each goal; ARGS are those of `cargo bench`:
                                   cargo xtask bench -p allstop-log         one crate
                                   cargo xtask bench -- stop                names that contain a word
    cargo xtask mutants REVISION small mistakes in the lines that differ from a commit; names those that no test catches:
                                   cargo xtask mutants --access             in all access checks
                                   cargo xtask mutants --minutes 60 HEAD~9  for an hour at most
    cargo xtask copilot-suite    the end-to-end tests of the official Copilot SDKs, from a checkout that you have prepared:
                                   cargo xtask copilot-suite --help         how to prepare it
    cargo xtask help             this text

`test` and `gates` fetch the parts that they need into the build folder (target/parts).
Needed on the machine: Rust, and Python 3 with pip. With Node and npm, MCP is tested with its reference server
and A2A with its client for JavaScript.
";

/// The subcommands. A check compares them with the commands in the documents.
const SUBCOMMANDS: [&str; 17] = [
    "test",
    "gates",
    "sources",
    "language",
    "texts",
    "minimal",
    "parts",
    "book",
    "dist",
    "explore",
    "bench",
    "mutants",
    "picture",
    "python",
    "wheel",
    "copilot-suite",
    "help",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = args
        .split_first()
        .map_or(("help", &[][..]), |(first, rest)| (first.as_str(), rest));
    let done = match command {
        "test" => test::run(rest).map(|()| ExitCode::SUCCESS),
        "gates" => gates::run().map(|()| ExitCode::SUCCESS),
        "minimal" => minimal::run().map(|()| ExitCode::SUCCESS),
        "parts" => parts::run().map(|()| ExitCode::SUCCESS),
        "book" => book::run().map(|()| ExitCode::SUCCESS),
        "dist" => dist::run(rest).map(|()| ExitCode::SUCCESS),
        "sources" => sources::run().map(|()| ExitCode::SUCCESS),
        "language" => language::run().map(|()| ExitCode::SUCCESS),
        "texts" => texts::run().map(|()| ExitCode::SUCCESS),
        "explore" => explore::run(rest),
        "picture" => picture::run().map(|()| ExitCode::SUCCESS),
        "python" => python::run().map(|()| ExitCode::SUCCESS),
        "wheel" => wheel::run().map(|()| ExitCode::SUCCESS),
        "mutants" => mutants::run(rest).map(|()| ExitCode::SUCCESS),
        "copilot-suite" => copilot_suite::run(rest),
        "bench" => bench::run(rest).map(|()| ExitCode::SUCCESS),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("error: no subcommand `{unknown}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
