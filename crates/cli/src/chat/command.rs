//! Parser of a typed line: a message or a command.

use allstop_runtime::Definitions;
use allstop_session::FollowUp;
use allstop_tools::permission::PermissionMode;

use super::server_content::is_prompt;
use crate::pasted_mark::unmark;
use crate::typed_command::TypedCommand;

/// Text of `/help`.
pub(super) const HELP: &str = "\
Commands:
  /stop [WHAT]        stop the turn, and show the receipt; WHAT: turn, all (its background work
                      too), session (everything, and leave), CALL or bg_N
  /preview [WHAT]     dry run of /stop
  /background [output|stop|wait bg_N]
                      list background work; show its output, stop it, or wait for it
  /output [CALL]      the whole output of the last call, or of a call by its id or tool
  /promote [CALL]     send a running call to the background
  /policy [NAME]      policy for a message that is sent while a turn runs: reject, enqueue,
                      interrupt, replace, steer
  /mode [NAME]        calls that run without a question: plan (reads; all other calls are denied),
                      ask (reads), accept-edits (reads and file changes)
  /answer [TEXT]      answer the question of an MCP server; without TEXT, agree or keep the default
  /refuse             refuse the question of an MCP server
  /undo               remove the last turn from the conversation
  /compact            summarise older turns
  /cost               tokens and cost of the session, for each model
  /status             model, session, folder, mode, context, cost and background work
  /history            the conversation so far
  /model [NAME]       go on with another model
  /clear              begin a new session; the present one stays in the store
  /resume [SESSION]   go on in another session, by its id, its number, or a list
  /export [FILE]      write the conversation to a Markdown file
  /thinking           show the reasoning of the model, or hide it again
  /quit               leave the chat; lists running work first, and a second /quit stops that work
  /mcp:SERVER:PROMPT [ARGUMENTS]
                      send a prompt of an MCP server
  //…                 a message that begins with a slash
Keys:
  Enter sends · Alt-Enter, Ctrl-J or \\ and Enter: a new line · Up, Down: earlier input
  Ctrl-R searches earlier input, and again an older entry; Escape ends the search
  Tab completes a command, and a file after @ · @shot.png attaches an image
  @SERVER:URI adds a resource of an MCP server
  Ctrl-L clears the screen
  Ctrl-_ undoes a change of the line · Ctrl-T swaps two letters · Ctrl-G opens $EDITOR
  Shift-Tab: the next mode
  Escape stops the turn. Ctrl-Z suspends. Ctrl-\\ quits at once.
  Ctrl-C stops the turn, and a second Ctrl-C uses force; at the prompt Ctrl-C clears the line.
  Ctrl-C or Ctrl-D on an empty line leaves the chat. If work runs, the key lists that work first,
  and a second press stops it. With --keep-background, background work keeps running";

/// Meaning of a typed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypedLine {
    /// The line is empty.
    Empty,
    /// Message for the model.
    Message(String),
    /// Message for the model: the prompt of a command from a file, with its arguments.
    Prompt(String),
    /// Command for a prompt of an MCP server.
    ServerPrompt(String),
    /// Command for the chat.
    Command(ChatCommand),
    /// Error message about an unknown command or wrong arguments.
    Wrong(String),
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Stop(TypedTarget),
    Preview(TypedTarget),
    Background(BackgroundCommand),
    /// The output of the call with this id or of this tool; `None` selects the most recent call.
    Output(Option<String>),
    /// The call with this id; `None` selects the only running call.
    Promote(Option<String>),
    Policy(Option<FollowUp>),
    Mode(Option<PermissionMode>),
    /// Value of a field of a server's form; empty for the default value.
    Answer(String),
    Refuse,
    Undo,
    Compact,
    Cost,
    Status,
    History,
    /// Switch to this model; `None` shows the present one.
    Model(Option<String>),
    Clear,
    /// Go on in the session with this name; `None` asks for one.
    Resume(Option<String>),
    /// Write the conversation to this file; `None` chooses a name.
    Export(Option<String>),
    Thinking,
    Quit,
}

/// Typed target of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypedTarget {
    Turn,
    AllWork,
    Session,
    /// A background item, such as `bg_1`.
    Background(String),
    Call(String),
}

/// Request about background work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BackgroundCommand {
    List,
    Output(String),
    Stop(String),
    Wait(String),
}

pub(super) const NAMES: [&str; 21] = [
    "answer",
    "refuse",
    "help",
    "stop",
    "background",
    "output",
    "promote",
    "policy",
    "mode",
    "preview",
    "undo",
    "compact",
    "cost",
    "status",
    "history",
    "model",
    "clear",
    "resume",
    "export",
    "thinking",
    "quit",
];

/// Other names of commands in [`NAMES`].
const OTHER_NAMES: [&str; 2] = ["bg", "exit"];

/// Removes commands that a chat would never run, because a command of the chat has the name.
pub(crate) fn without_builtin_names(mut definitions: Definitions) -> Definitions {
    let Definitions {
        commands, problems, ..
    } = &mut definitions;
    commands.retain(|name, command| {
        let is_builtin = NAMES.contains(&name.as_str()) || OTHER_NAMES.contains(&name.as_str());
        if is_builtin {
            problems.push(format!(
                "{} is ignored: /{name} is a command of the chat; rename the file",
                command.path.display()
            ));
        }
        !is_builtin
    });
    definitions
}

impl TypedLine {
    /// Parses a line. `definitions` contains the commands from files.
    pub(super) fn read(text: &str, definitions: &Definitions) -> Self {
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Self::Empty;
        }
        let Some(command) = text.strip_prefix('/') else {
            return Self::Message(text.to_owned());
        };
        if command.starts_with('/') {
            return Self::Message(command.to_owned());
        }
        if is_prompt(text) {
            return Self::ServerPrompt(text.to_owned());
        }
        // A path, such as `/etc/hosts`, is no command.
        let first = command.split_whitespace().next().unwrap_or_default();
        if first.contains('/') {
            return Self::Message(text.to_owned());
        }
        if let TypedCommand::Expanded { text, .. } = TypedCommand::find(text, definitions) {
            return Self::Prompt(text);
        }
        let command = unmark(command);
        let mut words = command.split_whitespace();
        let name = words.next().unwrap_or_default();
        let arguments: Vec<&str> = words.collect();
        match ChatCommand::read(name, &arguments, definitions) {
            Ok(command) => Self::Command(command),
            Err(why) => Self::Wrong(why),
        }
    }
}

impl ChatCommand {
    fn read(name: &str, arguments: &[&str], definitions: &Definitions) -> Result<Self, String> {
        Ok(match (name, arguments) {
            ("help" | "?", []) => Self::Help,
            ("stop", []) => Self::Stop(TypedTarget::Turn),
            ("stop", [what]) => Self::Stop(TypedTarget::read(what)),
            ("preview", []) => Self::Preview(TypedTarget::Turn),
            ("preview", [what]) => Self::Preview(TypedTarget::read(what)),
            ("background" | "bg", arguments) => {
                Self::Background(BackgroundCommand::read(arguments)?)
            }
            ("output", []) => Self::Output(None),
            ("output", [call]) => Self::Output(Some((*call).to_owned())),
            ("promote", []) => Self::Promote(None),
            ("promote", [call]) => Self::Promote(Some((*call).to_owned())),
            ("policy", []) => Self::Policy(None),
            ("policy", [name]) => {
                let policy = name.to_lowercase().parse::<FollowUp>();
                Self::Policy(Some(policy.map_err(|error| error.to_string())?))
            }
            ("mode", []) => Self::Mode(None),
            ("mode", [name]) => {
                let mode = name.to_lowercase().parse::<PermissionMode>();
                Self::Mode(Some(mode.map_err(|error| error.to_string())?))
            }
            ("answer", words) => Self::Answer(words.join(" ")),
            ("refuse", []) => Self::Refuse,
            ("undo", []) => Self::Undo,
            ("compact", []) => Self::Compact,
            ("cost", []) => Self::Cost,
            ("status", []) => Self::Status,
            ("history", []) => Self::History,
            ("model", []) => Self::Model(None),
            ("model", [name]) => Self::Model(Some((*name).to_owned())),
            ("clear" | "new", []) => Self::Clear,
            ("resume", []) => Self::Resume(None),
            ("resume", [name]) => Self::Resume(Some((*name).to_owned())),
            ("export", []) => Self::Export(None),
            ("export", [file]) => Self::Export(Some((*file).to_owned())),
            ("thinking", []) => Self::Thinking,
            ("quit" | "exit", []) => Self::Quit,
            (name, _) if NAMES.contains(&name) => {
                return Err(format!(
                    "wrong arguments for /{name}: /help shows its usage"
                ));
            }
            (name, _) => return Err(unknown(name, definitions)),
        })
    }
}

impl TypedTarget {
    fn read(what: &str) -> Self {
        match what {
            "turn" => Self::Turn,
            "all" => Self::AllWork,
            "session" => Self::Session,
            // An id with a slash, such as `bg_1/call_2`, names a call of a background agent.
            id if id.starts_with("bg_") && !id.contains('/') => Self::Background(id.to_owned()),
            id => Self::Call(id.to_owned()),
        }
    }
}

impl BackgroundCommand {
    fn read(arguments: &[&str]) -> Result<Self, String> {
        Ok(match arguments {
            [] | ["list"] => Self::List,
            ["output", id] => Self::Output((*id).to_owned()),
            ["stop", id] => Self::Stop((*id).to_owned()),
            ["wait", id] => Self::Wait((*id).to_owned()),
            _ => return Err("usage: /background [output|stop|wait bg_N]".to_owned()),
        })
    }
}

/// Error for an unknown command. Suggests a command only if the name is its beginning, or differs in few letters.
fn unknown(name: &str, definitions: &Definitions) -> String {
    let letters_max = (name.chars().count() / 3).max(1);
    let is_beginning = |known: &str| known.starts_with(name) && name.chars().count() > 1;
    let distance = |known: &str| {
        if is_beginning(known) {
            0
        } else {
            strsim::damerau_levenshtein(name, known)
        }
    };
    let from_files = definitions.commands.keys().map(String::as_str);
    let near = NAMES
        .into_iter()
        .chain(from_files)
        .min_by_key(|known| distance(known));
    let near = near.filter(|known| distance(known) <= letters_max);
    let meant = near.map_or(String::new(), |near| format!(" · did you mean /{near}?"));
    format!(
        "unknown command /{name}{meant} · /help lists all commands · //{name} sends it as a message"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> TypedLine {
        TypedLine::read(line, &Definitions::default())
    }

    fn command(line: &str) -> ChatCommand {
        match read(line) {
            TypedLine::Command(command) => command,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn wrong(line: &str) -> String {
        match read(line) {
            TypedLine::Wrong(why) => why,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_messages_or_commands() {
        assert_eq!(read("  \n"), TypedLine::Empty);
        assert_eq!(
            read("hello /stop"),
            TypedLine::Message("hello /stop".into())
        );
        assert_eq!(
            read("//etc is full"),
            TypedLine::Message("/etc is full".into())
        );
        assert_eq!(
            read("/etc/hosts is full"),
            TypedLine::Message("/etc/hosts is full".into())
        );
        assert_eq!(
            read("/mcp:docs:review a/b.md"),
            TypedLine::ServerPrompt("/mcp:docs:review a/b.md".into())
        );
        assert_eq!(command("/stop"), ChatCommand::Stop(TypedTarget::Turn));
        assert_eq!(
            command("/stop all"),
            ChatCommand::Stop(TypedTarget::AllWork)
        );
        assert_eq!(
            command("/stop bg_2"),
            ChatCommand::Stop(TypedTarget::Background("bg_2".into()))
        );
        assert_eq!(
            command("/stop bg_2/call_1"),
            ChatCommand::Stop(TypedTarget::Call("bg_2/call_1".into()))
        );
        assert_eq!(
            command("/preview call_7"),
            ChatCommand::Preview(TypedTarget::Call("call_7".into()))
        );
        assert_eq!(
            command("/policy STEER"),
            ChatCommand::Policy(Some(FollowUp::Steer))
        );
        assert_eq!(
            command("/background wait bg_1"),
            ChatCommand::Background(BackgroundCommand::Wait("bg_1".into()))
        );
    }

    #[test]
    fn errors_suggest_the_intended_command() {
        assert!(wrong("/stpo").contains("did you mean /stop?"));
        assert!(wrong("/bakground").contains("did you mean /background?"));
        assert!(wrong("/hist").contains("did you mean /history?"));
        for other in ["/xyz", "/nosuch", "/x"] {
            assert!(!wrong(other).contains("did you mean"), "{other}");
        }
        assert!(wrong("/undo 3").contains("/help"));
        assert!(wrong("/policy foo").contains("reject, enqueue, interrupt, replace or steer"));
    }

    #[test]
    fn the_help_names_every_command() {
        for name in NAMES.into_iter().filter(|name| *name != "help") {
            assert!(HELP.contains(&format!("/{name}")), "{name}");
        }
    }
}
