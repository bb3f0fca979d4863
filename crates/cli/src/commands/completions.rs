//! `allstop completions SHELL`: the completion script of a shell. In bash, zsh and fish, the script completes session
//! ids, too. For this, it runs `allstop completions --sessions` at each completion.

use clap_complete::Shell;

/// Bash function that completes ids of sessions. For all other arguments it calls `_allstop`, the generated function.
const BASH_SESSIONS: &str = r#"
_allstop_sessions() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
    case "${COMP_WORDS[1]} $prev" in
        "stop stop"|"watch watch"|"receipt receipt"|"run --session"|"chat --session"|"sessions show"|"sessions resume"|"sessions rm"|"sessions remove")
            if [[ "$cur" != -* ]]; then
                COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" completions --sessions 2>/dev/null | cut -f1)" -- "$cur"))
                return
            fi
            ;;
    esac
    _allstop "$@"
}
complete -F _allstop_sessions -o bashdefault -o default allstop
"#;

/// Zsh function that completes ids of sessions. [`zsh`] inserts it in place of the default function.
const ZSH_SESSIONS: &str = r#"
_allstop_sessions() {
    local -a sessions
    local id prompt
    while IFS=$'\t' read -r id prompt; do
        sessions+=("$id:$prompt")
    done < <(allstop completions --sessions 2>/dev/null)
    _describe -V -t sessions 'session' sessions
}
"#;

const FISH_SESSIONS: &str = r#"
complete -c allstop -n "__fish_allstop_using_subcommand stop watch receipt" -f -k -a "(allstop completions --sessions 2>/dev/null)"
complete -c allstop -n "__fish_allstop_using_subcommand sessions; and __fish_seen_subcommand_from show resume rm remove" -f -k -a "(allstop completions --sessions 2>/dev/null)"
complete -c allstop -n "__fish_allstop_using_subcommand run chat" -l session -x -k -a "(allstop completions --sessions 2>/dev/null)"
"#;

/// Returns the completion script of a command.
pub(crate) fn completions(shell: Shell, command: &mut clap::Command) -> String {
    let name = command.get_name().to_owned();
    // The generator panics if a write fails, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + BASH_SESSIONS,
        Shell::Fish => script + FISH_SESSIONS,
        Shell::Zsh => zsh(&script),
        _ => script,
    }
}

/// Adds [`ZSH_SESSIONS`] to the script, and uses this function for each argument that names a session.
fn zsh(script: &str) -> String {
    let is_session = |line: &str| {
        let begins = [
            "'--session=",
            "'::id -- The session",
            "'::id -- The id or a part of it, `last`",
            "':id -- The id or a part of it, `last`",
            "'*::ids -- The ids or parts of them, `last`",
        ];
        begins.iter().any(|begin| line.starts_with(begin))
    };
    let mut changed = String::with_capacity(script.len() + ZSH_SESSIONS.len());
    for (place, line) in script.lines().enumerate() {
        if is_session(line) {
            changed.push_str(&line.replace(":_default'", ":_allstop_sessions'"));
        } else {
            changed.push_str(line);
        }
        changed.push('\n');
        // Insert after `#compdef`, which must be the first line.
        if place == 0 {
            changed.push_str(ZSH_SESSIONS);
        }
    }
    changed
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::args::command;

    #[test]
    fn every_shell_has_a_script_with_the_subcommands() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let script = completions(shell, &mut command());
            assert!(script.contains("sessions"), "{shell}");
        }
    }

    /// [`zsh`] recognises the arguments that name a session by their help texts. If such a help text changes, this test
    /// fails.
    #[test]
    fn zsh_asks_for_sessions_at_each_argument_that_is_one() {
        let script = completions(Shell::Zsh, &mut command());
        assert!(script.starts_with("#compdef allstop\n\n_allstop_sessions() {"));
        // The commands with such an argument: run, chat; stop, watch, receipt; show, export, rm,
        // resume.
        assert_eq!(script.matches(":_allstop_sessions'").count(), 10);
    }
}
