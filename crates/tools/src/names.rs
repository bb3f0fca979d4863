//! Names of the built-in tools, as models, rules and records have them.

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

/// Starts a sub-agent. It is part of the loop, so it is not among [`ALL`].
pub const AGENT: &str = "agent";

/// All that this crate implements.
pub const ALL: [&str; 8] = [SHELL, READ, WRITE, EDIT, LIST, GLOB, GREP, BACKGROUND];
