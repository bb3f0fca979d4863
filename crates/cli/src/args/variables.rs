//! Environment variables of the flags of `run`. Each flag has a variable, so a job can set flags without a change of its
//! command line. A flag on the command line overrides variables, also the variables of flags that exclude it.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};

use crate::host::variable;

/// Subcommand with the variables.
const RUN: &str = "run";

/// Long names of flags, and their variables. The definitions of other flags, which several commands share, name their
/// variables themselves.
const VARIABLES: [(&str, &str); 25] = [
    ("then", "ALLSTOP_THEN"),
    ("image", "ALLSTOP_IMAGE"),
    ("record", "ALLSTOP_RECORD"),
    ("no-project-instructions", "ALLSTOP_NO_PROJECT_INSTRUCTIONS"),
    ("session", "ALLSTOP_SESSION"),
    ("continue", "ALLSTOP_CONTINUE"),
    ("wait-session", "ALLSTOP_WAIT_SESSION"),
    ("timeout", "ALLSTOP_TIMEOUT"),
    ("grace", "ALLSTOP_GRACE"),
    ("max-steps", "ALLSTOP_MAX_STEPS"),
    ("max-turns", "ALLSTOP_MAX_TURNS"),
    ("max-budget-tokens", "ALLSTOP_MAX_BUDGET_TOKENS"),
    ("on-stop", "ALLSTOP_ON_STOP"),
    ("yes", "ALLSTOP_YES"),
    ("deny", "ALLSTOP_DENY"),
    ("mode", "ALLSTOP_MODE"),
    ("fail-on-denied", "ALLSTOP_FAIL_ON_DENIED"),
    ("wait-background", "ALLSTOP_WAIT_BACKGROUND"),
    ("keep-background", "ALLSTOP_KEEP_BACKGROUND"),
    ("json", "ALLSTOP_JSON"),
    ("stream-json", "ALLSTOP_STREAM_JSON"),
    ("output-schema", "ALLSTOP_OUTPUT_SCHEMA"),
    ("quiet", "ALLSTOP_QUIET"),
    ("output", "ALLSTOP_OUTPUT"),
    ("receipt-file", "ALLSTOP_RECEIPT_FILE"),
];

/// Long names of flags that exclude each other.
const EXCLUSIVE: [[&str; 2]; 4] = [
    ["session", "continue"],
    ["yes", "deny"],
    ["wait-background", "keep-background"],
    ["json", "stream-json"],
];

/// Values of a switch, such as `ALLSTOP_QUIET`.
const ON: [&str; 4] = ["1", "true", "yes", "on"];
const OFF: [&str; 4] = ["0", "false", "no", "off"];

/// Names of the variables that set flags of one run. Commands of the model do not inherit them.
pub(crate) fn run_variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.into_iter().map(|(_, name)| name)
}

/// Adds the variable of a flag of `run`.
pub(super) fn attach(arg: Arg) -> Arg {
    let Some(name) = variable_of(&arg) else {
        return arg;
    };
    // A value in the help would be confusing in a manual page, and may be a secret.
    let arg = arg.env(name).hide_env_values(true);
    if is_switch(&arg) {
        return arg.value_parser(switch);
    }
    arg
}

fn variable_of(arg: &Arg) -> Option<&'static str> {
    let long = arg.get_long()?;
    let mut all = VARIABLES.into_iter();
    all.find_map(|(flag, name)| (flag == long).then_some(name))
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn switch(value: &str) -> Result<bool, String> {
    let value = value.to_ascii_lowercase();
    match value.as_str() {
        on if ON.contains(&on) => Ok(true),
        off if OFF.contains(&off) => Ok(false),
        _ => Err(format!("expected {} or {}", ON.join(", "), OFF.join(", "))),
    }
}

/// True if a variable asks for JSON.
pub(super) fn wants_json() -> bool {
    let is_on = |name| {
        let value = variable(name).and_then(|value| value.into_string().ok());
        value.is_some_and(|value| switch(&value) == Ok(true))
    };
    is_on("ALLSTOP_JSON") || is_on("ALLSTOP_STREAM_JSON")
}

/// Removes the variables that have no effect on this command line: empty variables, switches that are off, and variables
/// that a flag of the command line excludes.
pub(super) fn only_effective(command: Command, args: &[OsString]) -> Command {
    let is_empty = |name: &str| variable(name).is_none_or(|value| value.is_empty());
    if VARIABLES.iter().all(|(_, name)| variable(name).is_none()) {
        return command;
    }
    let given = flags_given(command.clone(), args);
    let is_excluded = |flag: &str| {
        let mut pairs = EXCLUSIVE.iter().filter(|pair| pair.contains(&flag));
        pairs.any(|pair| {
            pair.iter()
                .any(|other| *other != flag && given.iter().any(|given| given == other))
        })
    };
    let is_off = |name: &str| {
        let value = variable(name).and_then(|value| value.into_string().ok());
        value.is_some_and(|value| switch(&value) == Ok(false))
    };
    edit(command, |arg, name| {
        let flag = arg.get_long().unwrap_or_default();
        is_empty(name) || is_excluded(flag) || (is_switch(arg) && is_off(name))
    })
}

/// Long names of the flags on the command line of `run`. Empty if the command line is wrong: the parser then reports it.
fn flags_given(command: Command, args: &[OsString]) -> Vec<String> {
    let command = edit(command, |_, _| true);
    let mut flags: Vec<String> = Vec::new();
    let run = command.find_subcommand(RUN).cloned();
    let parsed = command.try_get_matches_from(args);
    if let (Ok(matches), Some(run)) = (parsed, run)
        && let Some(matches) = matches.subcommand_matches(RUN)
    {
        let is_given = |arg: &&Arg| {
            let source = matches.try_get_raw(arg.get_id().as_str());
            source.is_ok()
                && matches.value_source(arg.get_id().as_str())
                    == Some(clap::parser::ValueSource::CommandLine)
        };
        let longs = run
            .get_arguments()
            .filter(is_given)
            .filter_map(Arg::get_long);
        flags.extend(longs.map(str::to_owned));
    }
    flags
}

/// Removes the variables of flags of `run` if `is_removed` is true.
fn edit(command: Command, is_removed: impl Fn(&Arg, &'static str) -> bool) -> Command {
    command.mut_subcommand(RUN, |run| {
        run.mut_args(|arg| match variable_of(&arg) {
            Some(name) if is_removed(&arg, name) => {
                arg.env(Resettable::<clap::builder::OsStr>::Reset)
            }
            _ => arg,
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_flag_of_run_has_its_variable() {
        let command = Cli::command();
        let run = command.find_subcommand(RUN).expect("the command");
        for arg in run.get_arguments().filter(|arg| !arg.is_global_set()) {
            // The variable of `--otlp` has the name of the specification of OpenTelemetry.
            let other = ["help", "otlp"];
            let Some(long) = arg.get_long().filter(|long| !other.contains(long)) else {
                continue;
            };
            let name = format!("ALLSTOP_{}", long.replace('-', "_").to_uppercase());
            let variable = arg.get_env().and_then(std::ffi::OsStr::to_str);
            assert_eq!(variable, Some(name.as_str()), "--{long}");
        }
    }

    #[test]
    fn a_switch_is_on_or_off() {
        assert_eq!(switch("Yes"), Ok(true));
        assert_eq!(switch("0"), Ok(false));
        assert!(switch("maybe").unwrap_err().contains("expected 1, true"));
    }
}
