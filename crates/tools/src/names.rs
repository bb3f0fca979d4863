//! Names of the built-in tools in model requests, permission rules and records.

/// Runs a command.
pub const SHELL: &str = "shell";

/// Reads a file.
pub const READ: &str = "read";

/// Writes a whole file.
pub const WRITE: &str = "write";

/// Replaces a text in a file.
pub const EDIT: &str = "edit";

/// Lists a folder.
pub const LIST: &str = "list";

/// Finds files by a pattern of their paths.
pub const GLOB: &str = "glob";

/// Finds lines by a pattern.
pub const GREP: &str = "grep";

/// Reads, awaits or stops background work.
pub const BACKGROUND: &str = "background";

/// Loads the instructions of a skill. Exists only if skills are defined, so its name is not in [`ALL`].
pub const SKILL: &str = "skill";

/// Starts a sub-agent. The agent loop implements this tool, so its name is not in [`ALL`].
pub const AGENT: &str = "agent";

/// Names of all tools that this crate implements.
pub const ALL: [&str; 8] = [SHELL, READ, WRITE, EDIT, LIST, GLOB, GREP, BACKGROUND];
