//! The long form of the exploration, with a table at the end: `cargo xtask explore` runs it, and `--help` says how.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

mod options;
mod table;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use allstop_testkit::explore::{Exploration, Report, Scenario, VARIABLE, explore_kills};
use allstop_testkit::random_stops::RandomStops;
use allstop_testkit::scenarios;
use allstop_testkit::soak::{Soak, SoakLength};

use options::{Asked, HELP, Options};
use table::Table;

fn main() -> ExitCode {
    match options::read(std::env::args().skip(1)) {
        Ok(Asked::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Asked::List) => {
            for scenario in scenarios::everything() {
                println!("{}", scenario.name());
            }
            ExitCode::SUCCESS
        }
        Ok(Asked::Explore(options)) => explore(&options),
        Err(wrong) => {
            eprintln!("error: {wrong}; --help shows what there is");
            ExitCode::from(2)
        }
    }
}

/// Explores what was asked for, a scenario a core, and prints what was found.
fn explore(options: &Options) -> ExitCode {
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let table = Mutex::new(Table::default());
    let todo = Mutex::new(options.scenarios.iter());
    let next = || todo.lock().expect("nothing panics in here").next();
    let work = || {
        while let Some(scenario) = next() {
            explore_one(scenario, options, &table);
        }
    };
    let panicked = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..cores).map(|_| threads.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().is_err());
        // All are waited for, whichever panicked.
        ends.filter(|panicked| *panicked).count()
    });
    let mut table = table
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if options.real > 0 {
        let report = RandomStops::from_environment().run(options.real);
        print!("{report}");
        table.stopped_at_random(&report);
    }
    let mut grew = false;
    if options.soak > 0 {
        let length = SoakLength::Wall(Duration::from_mins(options.soak));
        let report = Soak::from_environment().run(length);
        print!("{report}");
        grew = !report.is_clean();
    }
    print!("{table}");
    println!(
        "\n{} cases in {:.1} s, {} broken",
        table.cases(),
        began.elapsed().as_secs_f64(),
        table.broken()
    );
    if panicked == 0 && table.broken() == 0 && !grew {
        return ExitCode::SUCCESS;
    }
    println!(
        "see one of them again, alone: {VARIABLE}='…' cargo xtask explore, as printed with it"
    );
    ExitCode::FAILURE
}

fn explore_one(scenario: &Scenario, options: &Options, table: &Mutex<Table>) {
    let lock = || table.lock().expect("nothing panics in here");
    if options.stops {
        let exploration = Exploration::of(scenario);
        let exploration = if options.quick {
            exploration
        } else {
            exploration.dense()
        };
        let report = timed("stops", || exploration.run());
        lock().explored(&report);
    }
    if options.kill {
        let again = || {
            let program = std::env::current_exe().expect("a program knows its own path");
            let mut command = Command::new(program);
            command.args(["--scenario", scenario.name()]);
            command
        };
        let report = timed("kills", || explore_kills(scenario, usize::MAX, again));
        lock().killed(&report);
    }
}

/// Explores, and says what came of it in a line; in more where something was broken.
fn timed(what: &str, explore: impl FnOnce() -> Report) -> Report {
    let began = Instant::now();
    let report = explore();
    let Report {
        scenario,
        points,
        cases,
        failures,
        ..
    } = &report;
    let rate = *cases as f64 / began.elapsed().as_secs_f64();
    println!(
        "{scenario:<28} {what}: {points:>4} points {cases:>7} cases {:>4} broken {rate:>7.0} cases/s",
        failures.len()
    );
    if !failures.is_empty() {
        println!("\n{report}");
    }
    report
}
