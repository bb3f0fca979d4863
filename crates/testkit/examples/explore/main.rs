//! The long form of the exploration, which prints a table at the end. `cargo xtask explore` runs this program, and
//! `--help` describes its options.

mod options;
mod output;
mod table;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use allstop_testkit::drive::by_moment::RandomStops;
use allstop_testkit::drive::soak::{Soak, SoakLength};
use allstop_testkit::explore::{CheckReport, Exploration, Scenario, VARIABLE, explore_kills};
use allstop_testkit::scenarios;

use options::{Asked, HELP, Options};
use output::{StandardOutput, print_error};
use table::Table;

/// Exit code if the arguments are invalid, or if the results could not be printed.
const NOT_DONE: u8 = 2;

fn main() -> ExitCode {
    let output = StandardOutput::default();
    let code = match options::read(std::env::args().skip(1)) {
        Ok(Asked::Help) => {
            output.print(HELP);
            ExitCode::SUCCESS
        }
        Ok(Asked::List) => {
            for scenario in scenarios::everything() {
                output.print(format_args!("{}\n", scenario.name()));
            }
            ExitCode::SUCCESS
        }
        Ok(Asked::Explore(options)) => explore(&options, &output),
        Err(wrong) => {
            print_error(format_args!("{wrong}; --help shows what there is"));
            return NOT_DONE.into();
        }
    };
    let Some(lost) = output.take_error() else {
        return code;
    };
    print_error(format_args!("cannot write to standard output: {lost}"));
    // A broken promise decides the exit code, even if the report could not be printed.
    if code == ExitCode::FAILURE {
        code
    } else {
        NOT_DONE.into()
    }
}

/// Explores the requested scenarios, one on each CPU core, and prints the results. After standard output is lost,
/// starts no more scenarios.
fn explore(options: &Options, output: &StandardOutput) -> ExitCode {
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let table = Mutex::new(Table::default());
    let todo = Mutex::new(options.scenarios.iter());
    let next = || todo.lock().expect("nothing panics in here").next();
    let work = || {
        while !output.is_lost()
            && let Some(scenario) = next()
        {
            explore_one(scenario, options, &table, output);
        }
    };
    let panicked = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..cores).map(|_| threads.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().is_err());
        // Waits for all threads, even if one has panicked.
        ends.filter(|panicked| *panicked).count()
    });
    let mut table = table
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if options.real > 0 && !output.is_lost() {
        let report = RandomStops::from_environment().run(options.real);
        output.print(&report);
        table.add(&report);
    }
    if options.soak > 0 && !output.is_lost() {
        let length = SoakLength::Wall(Duration::from_mins(options.soak));
        let report = Soak::from_environment().run(length);
        output.print(&report);
        table.add(&report);
    }
    output.print(format_args!(
        "{table}\n{} cases in {:.1} s, {} broken\n",
        table.cases(),
        began.elapsed().as_secs_f64(),
        table.broken()
    ));
    if panicked == 0 && table.broken() == 0 {
        return ExitCode::SUCCESS;
    }
    output.print(format_args!(
        "see one of them again, alone: {VARIABLE}='…' cargo xtask explore, as printed with it\n"
    ));
    ExitCode::FAILURE
}

fn explore_one(
    scenario: &Scenario,
    options: &Options,
    table: &Mutex<Table>,
    output: &StandardOutput,
) {
    let lock = || table.lock().expect("nothing panics in here");
    if options.stops {
        let exploration = Exploration::of(scenario);
        let exploration = if options.quick {
            exploration
        } else {
            exploration.dense()
        };
        let report = timed("stops", output, || exploration.run());
        lock().add(&report);
    }
    if options.kill && !output.is_lost() {
        let again = || {
            let program = std::env::current_exe().expect("a program knows its own path");
            let mut command = Command::new(program);
            command.args(["--scenario", scenario.name()]);
            command
        };
        let report = timed("kills", output, || {
            explore_kills(scenario, usize::MAX, again)
        });
        lock().add(&report);
    }
}

/// Explores, and prints the result in one line. If a promise was broken, also prints the whole report.
fn timed(
    what: &str,
    output: &StandardOutput,
    explore: impl FnOnce() -> CheckReport,
) -> CheckReport {
    let began = Instant::now();
    let report = explore();
    let CheckReport {
        scenario,
        points,
        cases,
        failures,
        ..
    } = &report;
    let rate = *cases as f64 / began.elapsed().as_secs_f64();
    output.print(format_args!(
        "{scenario:<28} {what}: {points:>4} points {cases:>7} cases {:>4} broken {rate:>7.0} cases/s\n",
        failures.len()
    ));
    if !failures.is_empty() {
        output.print(format_args!("\n{report}\n"));
    }
    report
}
