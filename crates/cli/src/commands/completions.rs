//! `allstop completions SHELL`: the completion script of a shell.

use clap_complete::Shell;

/// The script for a command.
pub(crate) fn completions(shell: Shell, command: &mut clap::Command) -> String {
    let name = command.get_name().to_owned();
    // Into memory: the generator panics on a writer that fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_with_the_subcommands() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let sessions = clap::Command::new("sessions");
            let mut command = clap::Command::new("allstop").subcommand(sessions);
            let script = completions(shell, &mut command);
            assert!(script.contains("sessions"), "{shell}");
        }
    }
}
