//! Flags of the model, its configuration and its prompt.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model name as its provider spells it (`gpt-5-mini`, `claude-…`, `ollama::qwen3`), or `script:FILE` (built in:
    /// `script:demo`) [default: the model of the provider whose key is set, if exactly one is]
    #[arg(long, value_name = "NAME", env = "ALLSTOP_MODEL")]
    pub(crate) model: Option<String>,
    /// URL of an OpenAI-compatible server (llama.cpp, Ollama, vLLM); `--model` is then the model name on that server
    #[arg(long, value_name = "URL", env = "ALLSTOP_BASE_URL")]
    pub(crate) base_url: Option<String>,
    /// Record the model's answers to a script for `--model script:FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The configuration file [default: ~/.config/allstop/allstop.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "ALLSTOP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Handling of the settings of the working directory: `.allstop.toml`, commands, skills and agents
    #[arg(
        long,
        value_name = "USE",
        env = "ALLSTOP_PROJECT_CONFIG",
        default_value = "ask"
    )]
    pub(crate) project_config: ProjectConfigChoice,
    #[command(flatten)]
    pub(crate) prompt: InstructionArgs,
}

impl ModelArgs {
    /// True if a flag or its environment variable chooses the model. A continued session then uses this model, even if
    /// the session remembers another one.
    pub(crate) fn chooses_model(&self) -> bool {
        self.model.is_some()
    }
}

/// Use of a project's configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProjectConfigChoice {
    /// Ask before the first use, and after each change; without a terminal, use it only if it is already trusted
    #[default]
    Ask,
    /// Use it for this command without asking
    Trust,
    /// Ignore it
    Ignore,
}

impl ProjectConfigChoice {
    /// Value on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Trust => "trust",
            Self::Ignore => "ignore",
        }
    }
}

/// Flags of the system prompt.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Instructions")]
pub(crate) struct InstructionArgs {
    /// File that replaces the default system prompt (`allstop config show --prompt` prints the prompt)
    #[arg(long, value_name = "FILE", env = "ALLSTOP_SYSTEM")]
    pub(crate) system: Option<PathBuf>,
    /// Omit the project's instructions: AGENTS.md, from the repository's root down to the working directory
    #[arg(long)]
    pub(crate) no_project_instructions: bool,
}
