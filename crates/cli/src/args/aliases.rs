//! Command lines that users of other agents type, and the bare command.

use std::ffi::{OsStr, OsString};

/// Flags that make the words of the command line a prompt.
const PROMPT_FLAGS: [&str; 3] = ["-p", "--print", "--prompt"];
/// Flags that continue the last session.
const CONTINUE_FLAGS: [&str; 2] = ["-c", "--continue"];

/// Replaces a command line of another agent by the command of Allstop. `at` is the index of the command. At a terminal,
/// a command line without a command opens a chat.
pub(super) fn replace(args: &mut Vec<OsString>, at: usize, is_at_terminal: bool) {
    let Some(first) = args.get(at).and_then(|first| first.to_str()) else {
        if args.len() == at && is_at_terminal {
            args.extend(["chat", "--or-init"].map(OsString::from));
        }
        return;
    };
    let is_flag = first.starts_with("--") && first != "--";
    let (replaced, by): (usize, &[&str]) = match first {
        "exec" => (1, &["run"]),
        "resume" | "-r" | "--resume" => (1, &["sessions", "resume"]),
        first if is_command(first) => return,
        _ => match take_flag(args, at, &PROMPT_FLAGS) {
            true => (0, &["run"]),
            false if take_flag(args, at, &CONTINUE_FLAGS) => (0, &["chat", "--continue"]),
            false if is_at_terminal && is_flag => (0, &["chat"]),
            false => return,
        },
    };
    let is_run = by == ["run"];
    args.splice(at..at + replaced, by.iter().map(OsString::from));
    if let Some(short) = args.iter_mut().skip(at).find(|arg| is_run && *arg == "-c") {
        *short = "--continue".into();
    }
    if let Some(last) = args
        .iter_mut()
        .skip(at)
        .find(|arg| !is_run && *arg == "--last")
    {
        *last = "last".into();
    }
}

fn is_command(first: &str) -> bool {
    !first.starts_with('-') || ["-h", "--help", "-V", "--version"].contains(&first)
}

/// Removes the first of these flags, if the command line has one. Words after `--` are no flags.
fn take_flag(args: &mut Vec<OsString>, at: usize, flags: &[&str]) -> bool {
    let is_it = |arg: &OsString| flags.iter().any(|flag| arg == OsStr::new(flag));
    let mut before_end = args.iter().skip(at).take_while(|arg| *arg != "--");
    let found = before_end.position(is_it);
    if let Some(found) = found {
        args.remove(at + found);
    }
    found.is_some()
}

/// Hint for the name of a command of another agent that Allstop does not have.
pub(super) fn hint(command: &str) -> Option<&'static str> {
    match command {
        "login" | "logout" | "auth" => Some(
            "Allstop stores no keys: set the variable of your provider (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY …). \
             `allstop init` lists the models and writes the configuration",
        ),
        "models" | "model" => Some(
            "`allstop init` lists the models of your provider or server, and --model NAME chooses one",
        ),
        "update" | "upgrade" => Some("install the new version: cargo install --path crates/cli"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_other_agents_are_understood() {
        for (given, read) in [
            (
                &["-p", "fix it", "--yes"][..],
                &["run", "fix it", "--yes"][..],
            ),
            (
                &["--model", "m", "-p", "hi"],
                &["run", "--model", "m", "hi"],
            ),
            (&["--print", "hi"], &["run", "hi"]),
            (&["-c", "-p", "hi"], &["run", "--continue", "hi"]),
            (&["exec", "fix it"], &["run", "fix it"]),
            (&["--continue"], &["chat", "--continue"]),
            (&["-c", "go on"], &["chat", "--continue", "go on"]),
            (&["resume"], &["sessions", "resume"]),
            (&["resume", "--last"], &["sessions", "resume", "last"]),
            (&["--resume", "ID"], &["sessions", "resume", "ID"]),
            (&["run", "-p"], &["run", "-p"]),
            (&["--help"], &["--help"]),
            (&["--yes"], &["chat", "--yes"]),
            (&["--model", "m"], &["chat", "--model", "m"]),
            (&["--", "-p"], &["--", "-p"]),
            (&[], &["chat", "--or-init"]),
        ] {
            let words = |words: &[&str]| -> Vec<OsString> {
                let all = ["allstop"].iter().chain(words);
                all.map(OsString::from).collect()
            };
            let mut args = words(given);
            replace(&mut args, 1, true);
            assert_eq!(args, words(read), "{given:?}");
        }
    }

    #[test]
    fn bare_command_without_a_terminal_stays() {
        let mut args = vec![OsString::from("allstop")];
        replace(&mut args, 1, false);
        assert_eq!(args.len(), 1);
    }
}
