//! The bounds of what a server may do to us: every size, count and wait, with its reason.

use std::time::Duration;

/// Bytes that a server may send without a whole message in them. One of them may carry a picture; more than this is no
/// answer that a model could read, and what is no message at all ends here too.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Tools of one server. A model is told of all of them with every call: a hundred are about ten thousand tokens.
pub const TOOLS_MAX: usize = 128;

/// Pages of one list of tools: with [`TOOLS_MAX`] tools there is no honest reason for more.
pub(super) const PAGES_MAX: usize = 32;

/// The pause between the word that a list of tools has changed and the question for it: what changes in quick succession
/// is one change. Each further one doubles it, so a server whose list never rests costs little.
pub(super) const LIST_PAUSE_FIRST: Duration = Duration::from_millis(100);

/// The longest such pause.
pub(super) const LIST_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A list that has rested for so long is a new one when it changes.
pub(super) const LIST_REST: Duration = Duration::from_secs(10);

/// Characters of a tool's description: about five hundred tokens.
pub const DESCRIPTION_CHARS_MAX: usize = 2_000;

/// Bytes of the schema of one tool's arguments; a tool with more is left out.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Calls of one server at a time: more than a model asks for in one step, and few enough to stay in every queue.
pub const CALLS_MAX: usize = 32;

/// Requests of the server that we have not answered yet. It may ping; it has no reason to do so in numbers.
pub(super) const REQUESTS_OPEN_MAX: usize = 32;

/// Characters of one progress message that people are shown: a line or two.
pub(super) const PROGRESS_CHARS_MAX: usize = 500;

/// Bytes of what a server printed last on standard error, for the reason why it failed.
pub(super) const STDERR_BYTES_MAX: usize = 2 * 1024;

/// How long the answer to a cancelled call is waited for. A server that heard owes no answer, and one that did not hear
/// may take hours: waiting longer holds up the stop and tells nothing.
pub const CANCEL_SETTLE: Duration = Duration::from_millis(300);

/// How long a server may take to exit when its input is closed, before it gets signals.
pub(super) const INPUT_CLOSED_WAIT: Duration = Duration::from_millis(300);

/// How long it may take after SIGTERM, before SIGKILL.
pub(super) const TERM_WAIT: Duration = Duration::from_millis(200);

/// How long closing a connection in good order may take: the other end may hang.
pub(super) const CLOSE_WAIT: Duration = Duration::from_millis(300);

/// How long a server may take to start and to list its tools, unless its configuration says otherwise. One that is
/// fetched at its first start takes seconds.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// How long a call may take, unless the configuration says otherwise: a server that never answers must not hold a turn
/// for ever.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_mins(10);

/// The pause before the first new attempt; each further one is twice as long.
pub(super) const RECONNECT_FIRST: Duration = Duration::from_millis(500);

/// The longest pause between attempts.
pub(super) const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// Attempts in a row that failed, after which only a call makes another: about three minutes.
pub(super) const RECONNECT_TRIES_MAX: u32 = 10;

/// A connection that lasted so long was a good one: its end is no attempt that failed.
pub(super) const CONNECTION_GOOD_AFTER: Duration = Duration::from_secs(30);
