//! The end of each `--help`: exit codes and examples. The constants next to the flags hold the long ones; this table
//! holds the others.

use clap::Command;

/// Exit codes of a command without special ones.
const CODES: &str = "0 done · 1 failure · 2 usage error, or not found";

/// Words of a command, its exit codes, and its examples, one per line.
const ENDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "0 done · 1 failure · 2 usage error, or not found; `allstop COMMAND --help` lists all codes of a command",
        &[
            "allstop \"What does this repository do?\"",
            "allstop chat",
            "allstop ps",
        ],
    ),
    (
        "receipt",
        "0 the receipt is printed · 1 the session has none, or its log cannot be read · 2 usage error, or not found",
        &[
            "allstop receipt",
            "allstop receipt EGE6SJCE --json | jq .items",
        ],
    ),
    ("workers", CODES, &[]),
    (
        "workers list",
        CODES,
        &["allstop workers list --store nats://127.0.0.1:4222"],
    ),
    (
        "workers drain",
        "0 the worker drains · 1 it does not answer, or a failure · 2 usage error, or not found",
        &["allstop workers drain EGE6SJCE --store nats://127.0.0.1:4222"],
    ),
    (
        "workers dead",
        CODES,
        &["allstop workers dead --store nats://127.0.0.1:4222 --json"],
    ),
    (
        "workers redrive",
        CODES,
        &["allstop workers redrive 5NBR4XQC --store nats://127.0.0.1:4222"],
    ),
    (
        "tasks list",
        CODES,
        &["allstop tasks list --state working --json | jq '.tasks[].id'"],
    ),
    ("tasks show", CODES, &["allstop tasks show EGE6SJCE"]),
    (
        "tasks watch",
        "0 completed · 1 failed or rejected, or no answer for 30 s · 2 usage error, or not found · 130 the task was \
         stopped, or Ctrl-C",
        &["allstop tasks watch EGE6SJCE --json"],
    ),
    (
        "tasks stop",
        "0 all work of the task has ended, verified · 1 work may still run, or a failure · 2 usage error, or not found",
        &["allstop tasks stop EGE6SJCE --reason \"wrong branch\""],
    ),
    ("tasks preview", CODES, &["allstop tasks preview EGE6SJCE"]),
    (
        "sessions",
        CODES,
        &["allstop sessions list", "allstop sessions show last"],
    ),
    (
        "sessions list",
        CODES,
        &[
            "allstop sessions list --limit 5",
            "allstop sessions list --json | jq -r '.sessions[].session_id'",
        ],
    ),
    (
        "sessions show",
        CODES,
        &[
            "allstop sessions show last --full",
            "allstop sessions show 2 --json",
        ],
    ),
    (
        "sessions rm",
        "0 removed · 1 a session is in use, or a failure · 2 usage error, or not found",
        &["allstop sessions rm EGE6SJCE"],
    ),
    ("sessions prune", CODES, &[]),
    ("store", CODES, &[]),
    (
        "store check",
        "0 no problem found · 1 a problem found · 2 usage error",
        &["allstop store check --json | jq '.problems[]'"],
    ),
    (
        "store backup",
        "0 the copy is whole · 1 the store has damage, or a failure · 2 usage error",
        &["allstop store backup ~/store-copy.db"],
    ),
    ("store compact", CODES, &["allstop store compact"]),
    ("store repair", CODES, &["allstop store repair"]),
    (
        "store export",
        "0 everything is written · 1 a part is left out, or a failure · 2 usage error",
        &["allstop store export sessions.jsonl"],
    ),
    (
        "store import",
        "0 everything is added · 1 a part is left out, or a failure · 2 usage error",
        &["allstop store import sessions.jsonl"],
    ),
    (
        "config",
        CODES,
        &["allstop config show", "allstop config trust"],
    ),
    (
        "config show",
        CODES,
        &["allstop config show", "allstop config show --prompt"],
    ),
    ("config trust", CODES, &["allstop config trust"]),
    ("config untrust", CODES, &["allstop config untrust"]),
    (
        "init",
        CODES,
        &["allstop init", "allstop init --config ./allstop.toml"],
    ),
    (
        "doctor",
        CODES,
        &[
            "allstop doctor",
            "allstop doctor --online --model gpt-5-mini",
        ],
    ),
    (
        "mcp",
        CODES,
        &["allstop mcp list", "allstop mcp test files"],
    ),
    ("mcp list", CODES, &["allstop mcp list"]),
    ("mcp add", CODES, &[]),
    ("mcp remove", CODES, &["allstop mcp remove files"]),
    (
        "mcp login",
        "0 logged in · 1 refused, or no answer in ten minutes · 2 usage error, or not found · 130 Ctrl-C",
        &[],
    ),
    ("mcp logout", CODES, &["allstop mcp logout tickets"]),
    (
        "mcp test",
        "0 the server lists its tools, and ends · 1 it fails · 2 usage error, or not found",
        &["allstop mcp test files"],
    ),
    (
        "schema",
        CODES,
        &[
            "allstop schema",
            "allstop schema receipt > receipt.schema.json",
        ],
    ),
    (
        "man",
        CODES,
        &[
            "allstop man run | man -l -",
            "allstop man --folder ~/.local/share/man/man1",
        ],
    ),
    (
        "completions",
        CODES,
        &["allstop completions bash > ~/.local/share/bash-completion/completions/allstop"],
    ),
    (
        "demo",
        "0 every proof holds · 1 a proof failed, or an error · 2 usage error",
        &["allstop demo", "allstop demo --json | jq .proofs"],
    ),
];

/// Adds the missing exit codes and examples to the help of a command and of all its subcommands.
pub(super) fn complete(command: Command) -> Command {
    complete_below(command, "")
}

fn complete_below(command: Command, words: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let command = names.into_iter().fold(command, |command, name| {
        let below = format!("{words} {name}").trim().to_owned();
        command.mut_subcommand(name, |sub| complete_below(sub, &below))
    });
    let Some((_, codes, examples)) = ENDS.iter().find(|(of, ..)| *of == words) else {
        return command;
    };
    let mut text = command
        .get_after_help()
        .map_or_else(String::new, ToString::to_string);
    let mut add = |title: &str, lines: &[&str]| {
        if lines.is_empty() || text.contains(title) {
            return;
        }
        if !text.is_empty() {
            text += "\n\n";
        }
        text = format!("{}{title}\n  {}", text, lines.join("\n  "));
    };
    add("Exit codes:", &[codes]);
    add("Examples:", examples);
    command.after_help(text)
}
