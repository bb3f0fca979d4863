//! The subcommands of the binary, as its help lists them.

use super::Place;

/// Words of each command that has no subcommands, such as `sessions list`.
pub(crate) fn leaves(place: &Place) -> Vec<String> {
    let all = all(place);
    let is_group = |words: &str| {
        let prefix = format!("{words} ");
        all.iter().any(|other| other.starts_with(&prefix))
    };
    let leaves = all.iter().filter(|words| !is_group(words));
    leaves.cloned().collect()
}

/// Words of each command and of each group of commands.
pub(crate) fn all(place: &Place) -> Vec<String> {
    let mut found = Vec::new();
    let mut unread = vec![String::new()];
    while let Some(words) = unread.pop() {
        let help = help(place, &words);
        let (_, commands) = help.split_once("\nCommands:\n").unwrap_or_default();
        let commands = commands.lines().take_while(|line| !line.is_empty());
        // A line with more indentation continues a description.
        let rows = commands.filter_map(|line| line.strip_prefix("  "));
        let names = rows.filter_map(|line| line.split(' ').next());
        for name in names.filter(|name| !name.is_empty() && *name != "help") {
            let words = format!("{words} {name}").trim().to_owned();
            found.push(words.clone());
            unread.push(words);
        }
    }
    found
}

/// Output of `--help` of this command.
pub(crate) fn help(place: &Place, words: &str) -> String {
    place.allstop().args(words).arg("--help").end().ok().stdout
}
