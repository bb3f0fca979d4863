//! Options of the exploration.

use allstop_testkit::explore::{CaseName, Scenario, StopMethod, VARIABLE};
use allstop_testkit::scenarios;

pub(crate) const HELP: &str = "\
Explores Allstop's own agent and its sessions: runs each scenario once for its points, and then stops it at every point in every way.

    cargo xtask explore                              every scenario, at every point in every way
    cargo xtask explore --scenario NAME              only this one; may be given several times, `all` is every one
    cargo xtask explore --kill                       and kill -9 of a process at each semantic point, on a store on disk
    cargo xtask explore --real N                     and N stops at random moments of real processes, sockets and a store
    cargo xtask explore --soak MINUTES               days of sessions over one store, with crashes, for so long
    cargo xtask explore --quick                      only what the tests run at every change
    cargo xtask explore --list                       the names of the scenarios

A scenario is built from parts that say what they do, so that before, inside and after each thing there is a point; every
poll of a task is one too. Time is paused, so that the run is the same each time. After each stopped run every promise
of the design is checked: the table at the end has a row for each.

A broken case is printed with its name. See it again, alone:

    ALLSTOP_EXPLORE=parallel_tools/34/turn:user cargo xtask explore
    ALLSTOP_EXPLORE_SEED=1234 cargo xtask explore --real 40
    ALLSTOP_EXPLORE_SEED=1234 cargo xtask explore --soak 10

Exit code: 0 if nothing was broken, 1 if something was, 2 if the arguments make no sense or nobody can be told: standard
output is closed or full.
";

/// Options of the exploration, which stops scenarios at their points and checks the results.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) scenarios: Vec<Scenario>,
    /// True to stop the scenarios inside this process.
    pub(crate) stops: bool,
    pub(crate) kill: bool,
    pub(crate) quick: bool,
    pub(crate) real: u32,
    /// Duration of the soak in minutes of real time.
    pub(crate) soak: u64,
}

/// The request that the command line contains.
#[derive(Debug)]
pub(crate) enum Asked {
    Help,
    List,
    Explore(Options),
}

/// Reads the arguments.
///
/// # Errors
/// Returns an error that names the invalid argument.
pub(crate) fn read(args: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let mut options = Options {
        stops: true,
        ..Options::default()
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value = || {
            let value = value.clone().or_else(|| args.next());
            value.ok_or_else(|| format!("{flag} needs a value"))
        };
        match flag {
            "--help" | "-h" => return Ok(Asked::Help),
            "--list" => return Ok(Asked::List),
            "--kill" => options.kill = true,
            "--quick" => options.quick = true,
            "--scenario" => options.scenarios.extend(named(&value()?)?),
            "--real" => {
                let text = value()?;
                let count = text.parse();
                options.real = count.map_err(|_| format!("--real {text}: not a number"))?;
            }
            "--soak" => {
                let text = value()?;
                let minutes = text.parse();
                options.soak = minutes.map_err(|_| format!("--soak {text}: not a number"))?;
            }
            _ => return Err(format!("{arg} is not known")),
        }
    }
    if let Some(case) = case_from_environment()? {
        options.scenarios = named(&case.scenario)?;
        options.kill = case.method == StopMethod::Kill;
        options.stops = !options.kill;
        (options.real, options.soak) = (0, 0);
    } else if options.scenarios.is_empty() && options.real == 0 && options.soak == 0 {
        options.scenarios = scenarios::everything();
    }
    Ok(Asked::Explore(options))
}

/// Returns the case that the environment variable names; `None` if the variable is not set.
fn case_from_environment() -> Result<Option<CaseName>, String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a failure prints a variable that any program which explores obeys"
    )]
    let Ok(text) = std::env::var(VARIABLE) else {
        return Ok(None);
    };
    let case = text.parse().map(Some);
    case.map_err(|wrong| format!("{VARIABLE}: {wrong}"))
}

/// Returns the scenarios with this name.
fn named(name: &str) -> Result<Vec<Scenario>, String> {
    let mut scenarios = scenarios::everything();
    if name != "all" {
        scenarios.retain(|scenario| **scenario.name() == *name);
    }
    if scenarios.is_empty() {
        return Err(format!(
            "there is no scenario {name}: --list has their names"
        ));
    }
    Ok(scenarios)
}
