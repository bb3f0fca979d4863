//! Completion by Tab: the rest of a command's name or argument.

use super::command::NAMES;
use allstop_session::FollowUp;
use allstop_tools::permission::PermissionMode;

/// Names that the arguments of commands can currently refer to.
#[derive(Debug, Default)]
pub(super) struct CompletionNames {
    /// Ids of background work, such as `bg_1`.
    pub(super) background: Vec<String>,
    /// Ids of the running calls.
    pub(super) calls: Vec<String>,
    /// Ids of all calls with an output, from the newest to the oldest.
    pub(super) outputs: Vec<String>,
    /// Ids of the running calls of sub-agents, such as `call_1/call_2`.
    pub(super) nested: Vec<String>,
}

/// Completion of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// The line is no command, or no candidate matches.
    Nothing,
    /// The completed line.
    Line(String),
    /// Several candidates, which have only the typed text in common.
    Choices(Vec<String>),
}

/// Completes the last word of a command.
pub(super) fn complete(line: &str, names: &CompletionNames) -> Completed {
    let Some(command) = line.strip_prefix('/').filter(|rest| !rest.starts_with('/')) else {
        return Completed::Nothing;
    };
    let (before, word) = command.rsplit_once(' ').unwrap_or(("", command));
    let is_name = before.is_empty() && !command.starts_with(' ');
    let mut candidates = if is_name {
        NAMES.map(str::to_owned).to_vec()
    } else {
        let before: Vec<&str> = before.split_whitespace().collect();
        arguments(&before, names)
    };
    candidates.retain(|candidate| candidate.starts_with(word));
    let stem = line.strip_suffix(word).unwrap_or_default();
    match candidates.as_slice() {
        [] => Completed::Nothing,
        [only] => Completed::Line(format!("{stem}{only} ")),
        many => match common(many) {
            common if common.len() > word.len() => Completed::Line(format!("{stem}{common}")),
            _ => Completed::Choices(candidates),
        },
    }
}

/// Words that may follow the given words of a command.
fn arguments(before: &[&str], names: &CompletionNames) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match before {
        ["stop" | "preview"] => {
            let extents: Vec<String> = words(&["turn", "all", "session"]);
            let all = [&extents, &names.background, &names.calls, &names.nested];
            all.map(Vec::as_slice).concat()
        }
        ["background" | "bg"] => words(&["output", "stop", "wait"]),
        ["background" | "bg", "output" | "stop" | "wait"] => names.background.clone(),
        ["output"] => names.outputs.clone(),
        ["promote"] => names.calls.clone(),
        ["mode"] => words(&PermissionMode::ALL.map(PermissionMode::as_str)),
        ["policy"] => words(&FollowUp::ALL.map(FollowUp::as_str)),
        _ => Vec::new(),
    }
}

/// Longest beginning that all the words share.
fn common(words: &[String]) -> &str {
    let Some((first, others)) = words.split_first() else {
        return "";
    };
    let len = others.iter().fold(first.len(), |len, other| {
        let same = first.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        same.map(|(c, _)| c.len_utf8()).sum::<usize>().min(len)
    });
    first.get(..len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Completed {
        let names = CompletionNames {
            background: vec!["bg_1".into(), "bg_2".into()],
            calls: vec!["call_7".into()],
            outputs: Vec::new(),
            nested: vec!["bg_1/call_3".into()],
        };
        complete(line, &names)
    }

    #[track_caller]
    fn check(line: &str, to: &str) {
        assert_eq!(completed(line), Completed::Line(to.to_owned()), "{line}");
    }

    #[test]
    fn names_are_completed_up_to_the_first_ambiguity() {
        check("/st", "/stop ");
        check("/stop a", "/stop all ");
        check("/stop b", "/stop bg_");
        check("/stop c", "/stop call_7 ");
        check("/preview se", "/preview session ");
        check("/policy en", "/policy enqueue ");
        check("/stop bg_1/", "/stop bg_1/call_3 ");
        check("/promote ", "/promote call_7 ");
        check("/background w", "/background wait ");
        check("/bg wait ", "/bg wait bg_");
    }

    #[test]
    fn ambiguous_completion_lists_the_choices() {
        let choices = |words: &[&str]| {
            Completed::Choices(words.iter().map(|word| (*word).to_owned()).collect())
        };
        assert_eq!(completed("/p"), choices(&["promote", "policy", "preview"]));
        assert_eq!(
            completed("/stop bg_"),
            choices(&["bg_1", "bg_2", "bg_1/call_3"])
        );
    }

    #[test]
    fn messages_and_what_does_not_fit_stay_as_they_are() {
        for line in ["", "st", "//etc", "/xyz", "/undo ", "/stop all ", "/ st"] {
            assert_eq!(completed(line), Completed::Nothing, "{line}");
        }
    }
}
