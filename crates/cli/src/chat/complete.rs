//! Completion by Tab: the rest of a command's name or argument.

use allstop_session::FollowUp;
use allstop_tools::permission::PermissionMode;

use super::command::NAMES;
use crate::image_names::{after_at, ends_in_word};

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
    /// Files of the working folder.
    pub(super) files: Vec<String>,
    /// Names of the commands from files.
    pub(super) commands: Vec<String>,
}

/// Maximum number of files that are listed as choices.
const FILES_MAX: usize = 20;

/// The beginning of a name of a file at the end of a line, after `@` or `@"`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileWord<'a> {
    /// The line before the `@`.
    stem: &'a str,
    word: &'a str,
    is_quoted: bool,
}

/// The beginning of the name of a file, if the line ends with one.
pub(super) fn file_word(line: &str) -> Option<FileWord<'_>> {
    if let Some((stem, word)) = line.rsplit_once("@\"")
        && !word.contains(['"', '\n'])
        && !ends_in_word(stem)
    {
        let is_quoted = true;
        return Some(FileWord {
            stem,
            word,
            is_quoted,
        });
    }
    let last = line.rsplit(char::is_whitespace).next()?;
    let word = last.strip_prefix('@')?;
    let stem = line.strip_suffix(last)?;
    Some(FileWord {
        stem,
        word,
        is_quoted: false,
    })
}

/// Completes the name of a file after `@`. Names that begin with the word come before names that contain it.
fn complete_file(typed: &FileWord<'_>, files: &[String]) -> Completed {
    let FileWord { stem, word, .. } = *typed;
    let begins: Vec<String> = files
        .iter()
        .filter(|file| file.starts_with(word))
        .cloned()
        .collect();
    let common = common(&begins);
    if let [only] = begins.as_slice() {
        return typed.whole(only);
    }
    if common.len() > word.len() {
        let needs_quotes = typed.is_quoted || common.contains(char::is_whitespace);
        let quote = if needs_quotes { "\"" } else { "" };
        return Completed::Line(format!("{stem}@{quote}{common}"));
    }
    let lower = word.to_lowercase();
    let contains = files
        .iter()
        .filter(|file| !file.starts_with(word) && file.to_lowercase().contains(&lower));
    let mut found = begins;
    found.extend(contains.cloned());
    match found.as_slice() {
        [] => Completed::Nothing,
        [only] => typed.whole(only),
        _ => {
            let left_out = found.len().saturating_sub(FILES_MAX);
            found.truncate(FILES_MAX);
            if left_out > 0 {
                found.push(format!("and {left_out} more"));
            }
            Completed::Choices(found)
        }
    }
}

impl FileWord<'_> {
    /// The line with the whole name of a file.
    fn whole(&self, file: &str) -> Completed {
        let name = after_at(file);
        Completed::Line(format!("{}{name} ", self.stem))
    }
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

/// Completes the last word of a command, or the file after `@`.
pub(super) fn complete(line: &str, names: &CompletionNames) -> Completed {
    if let Some(typed) = file_word(line) {
        return complete_file(&typed, &names.files);
    }
    let Some(command) = line.strip_prefix('/').filter(|rest| !rest.starts_with('/')) else {
        return Completed::Nothing;
    };
    let (before, word) = command.rsplit_once(' ').unwrap_or(("", command));
    let is_name = before.is_empty() && !command.starts_with(' ');
    let mut candidates = if is_name {
        let own = NAMES.map(str::to_owned);
        own.into_iter()
            .chain(names.commands.iter().cloned())
            .collect()
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
            files: [
                "src/lib.rs",
                "src/main.rs",
                "README.md",
                "my shot.png",
                "a b1",
                "a b2",
            ]
            .map(str::to_owned)
            .to_vec(),
            commands: vec!["review".into()],
        };
        complete(line, &names)
    }

    #[track_caller]
    fn check(line: &str, to: &str) {
        assert_eq!(completed(line), Completed::Line(to.to_owned()), "{line}");
    }

    #[test]
    fn names_are_completed_up_to_the_first_ambiguity() {
        check("/sto", "/stop ");
        check("/stop a", "/stop all ");
        check("/rev", "/review ");
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
    fn files_are_completed_after_an_at_sign() {
        check("look at @RE", "look at @README.md ");
        check("look at @s", "look at @src/");
        check("@main", "@src/main.rs ");
        for typed in ["@my", "@\"my", "@\"my s", "@shot"] {
            check(typed, "@\"my shot.png\" ");
            check(&format!("see {typed}"), "see @\"my shot.png\" ");
        }
        check("@a", "@\"a b");
        check("@\"src/l", "@src/lib.rs ");
        check("@\"my shot.png\" @RE", "@\"my shot.png\" @README.md ");
        assert_eq!(
            completed("@\"a b"),
            Completed::Choices(vec!["a b1".into(), "a b2".into()])
        );
        assert_eq!(
            completed("@src/"),
            Completed::Choices(vec!["src/lib.rs".into(), "src/main.rs".into()])
        );
        assert_eq!(completed("@nosuch"), Completed::Nothing);
        assert_eq!(completed("me@example"), Completed::Nothing);
    }

    #[test]
    fn messages_and_what_does_not_fit_stay_as_they_are() {
        for line in ["", "st", "//etc", "/xyz", "/undo ", "/stop all ", "/ st"] {
            assert_eq!(completed(line), Completed::Nothing, "{line}");
        }
    }
}
