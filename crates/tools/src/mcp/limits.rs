//! Limits for an MCP server: every size, count and wait, with its reason.

use std::time::Duration;

/// Maximum size of a server's message, in bytes. A message may contain a picture, and no model could read a larger
/// answer. The limit also ends endless output that is not a message.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum size of the body of an HTTP error, in bytes: many times the usual size.
pub(super) const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a server's name, in bytes. A server's name of this length and two underscores leave forty bytes
/// for the tool's name.
pub(super) const SERVER_NAME_LEN_MAX: usize = 22;

/// Maximum number of tools of one server. Each model call lists all tools, and a hundred tools are about ten thousand
/// tokens.
pub const TOOLS_MAX: usize = 128;

/// Maximum number of pages of one list of tools: [`TOOLS_MAX`] tools need no more pages.
pub(super) const PAGES_MAX: usize = 32;

/// First pause between the notification of a changed list and the request for the list. Changes in quick succession
/// count as one change. Each further change doubles the pause, so that a constantly changing list costs little.
pub(super) const LIST_PAUSE_FIRST: Duration = Duration::from_millis(100);

/// Maximum of the pause that begins with [`LIST_PAUSE_FIRST`].
pub(super) const LIST_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time without a change of the list after which the pause starts again at [`LIST_PAUSE_FIRST`].
pub(super) const LIST_REST: Duration = Duration::from_secs(10);

/// Maximum length of a tool's description, in characters: about five hundred tokens.
pub const DESCRIPTION_CHARS_MAX: usize = 2_000;

/// Maximum size of the schema of one tool's arguments, in bytes; a tool with a larger schema is left out.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of open calls of one server. A model makes fewer calls in one step, and this number of calls fits
/// into each queue of the connection.
pub const CALLS_MAX: usize = 32;

/// Maximum number of unanswered requests from the server. A server may ping, but has no reason to send many pings at
/// once.
pub(super) const REQUESTS_OPEN_MAX: usize = 32;

/// Interval at which the latest progress of a call is shown: as often as people can read it, even if the server reports
/// progress more often.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Number of bytes that are kept from the end of a server's standard error. If the server fails, these bytes show the
/// reason.
pub(super) const STDERR_BYTES_MAX: usize = 2 * 1024;

/// Time that a stop waits for the answer to a cancelled call. A server that received the cancellation need not answer,
/// and a server that did not receive the cancellation may take hours. A longer wait delays the stop and adds no
/// information.
pub const CANCEL_SETTLE: Duration = Duration::from_millis(300);

/// Like [`CANCEL_SETTLE`], for a server that answers a cancelled call after the end of its command. The time is below the
/// usual grace of a stop (2 s).
pub(super) const CANCEL_SETTLE_CONFIRMED: Duration = Duration::from_millis(1_800);

/// Like [`CANCEL_SETTLE`], if the server ends with the call, because the program ends. An answer proves the end of the
/// call as well as the end of the server does. The time lets a server answer, or undo an effect of the call, before its
/// input is closed, and a person does not notice the delay.
pub(super) const CANCEL_SETTLE_BEFORE_CLOSE: Duration = Duration::from_millis(20);

/// Time between the close of a server's input and SIGTERM, in which the server may exit.
pub(super) const INPUT_CLOSED_WAIT: Duration = Duration::from_millis(300);

/// Time between SIGTERM and SIGKILL, in which a server may exit.
pub(super) const TERM_WAIT: Duration = Duration::from_millis(200);

/// Time limit for closing a connection cleanly, because the other end may hang.
pub(super) const CLOSE_WAIT: Duration = Duration::from_millis(300);

/// Default time limit for a server to start and to list its tools. A server that is downloaded at its first start takes
/// seconds.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// Time that a server has to answer the first request. A server of an earlier revision may ignore this request, and the
/// handshake follows after this time. A running server answers in milliseconds, but a program may first have to be
/// loaded.
pub(super) const DISCOVERY_WAIT: Duration = Duration::from_secs(5);

/// Maximum wait for an access token from a program. A person may have to log in with a browser, as in the limit of a call.
pub(super) const TOKEN_WAIT_MAX: Duration = CALL_TIMEOUT_DEFAULT;

/// Maximum time to read the document about a server that needs a token. The request for the token waits for it.
pub(super) const METADATA_WAIT: Duration = Duration::from_secs(5);

/// Maximum number of requests for one call. A server may ask for more information after each request, and a call with
/// more questions is not finished by answering them.
pub(super) const ROUNDS_MAX: usize = 10;

/// Pause before a request is repeated only because the server wants it later.
pub(super) const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// Default time limit of a call, because a server that never answers must not hold a turn forever.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_mins(10);

/// Pause before the first reconnection attempt; each further pause is twice as long.
pub(super) const RECONNECT_FIRST: Duration = Duration::from_millis(500);

/// Maximum pause between two reconnection attempts.
pub(super) const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// Number of consecutive failed attempts after which only a call starts another attempt. The pauses between these
/// attempts are about two minutes in total.
pub(super) const RECONNECT_TRIES_MAX: u32 = 10;

/// If a connection lasts at least this long, it counts as good, and its end does not count as a failed attempt.
pub(super) const CONNECTION_GOOD_AFTER: Duration = Duration::from_secs(30);
