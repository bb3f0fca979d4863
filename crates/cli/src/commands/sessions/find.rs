//! Search for the session that a user names.

use allstop_core::SessionId;
use allstop_log::{Log, newest_sessions};

use super::error::SessionsError;
use crate::error::CliError;
use crate::shell_command::SameFlags;
use crate::short_id::{LAST, is_meant, short};

/// Maximum number of similar ids in a hint. A hint with more ids would be too long.
const NEAR_MAX: usize = 3;
/// Minimum similarity of the ids in a hint; 1 is equality. A lower limit would suggest unrelated ids: ids from the same
/// hour have a third of their letters in common.
const NEAR_MIN: f64 = 0.8;

/// Maximum digits of a number in the list of sessions. A longer number counts as a part of an id.
const NUMBER_DIGITS_MAX: usize = 4;

/// Parses a number in the list of sessions: up to four digits, and the first digit is not 0. `None` if `given` is not
/// such a number.
pub(super) fn list_number(given: &str) -> Option<usize> {
    let is_number = given.len() <= NUMBER_DIGITS_MAX && given.bytes().all(|b| b.is_ascii_digit());
    let number = given
        .parse()
        .ok()
        .filter(|_| is_number && !given.starts_with('0'));
    number.filter(|number| *number > 0)
}

/// Finds the session with this id or this number in the list, or the only session whose id contains `given`. [`LAST`]
/// selects the session with the newest record.
pub(super) async fn find(log: &dyn Log, given: &str) -> Result<SessionId, SessionsError> {
    let listed = newest_sessions(log).await?.into_iter();
    // Their numbers in `sessions list` count from 1 in this order.
    let mut ids: Vec<_> = listed.map(|session| session.id).collect();
    if let Some(at) = ids.iter().position(|id| id.as_str() == given) {
        return Ok(ids.swap_remove(at));
    }
    if given == LAST {
        return ids.into_iter().next().ok_or(SessionsError::None);
    }
    if let Some(number) = list_number(given) {
        let count = ids.len();
        if count == 0 {
            return Err(SessionsError::None);
        }
        let named = ids.into_iter().nth(number - 1);
        return named.ok_or(SessionsError::NoNumber { number, count });
    }
    let mut matches: Vec<&SessionId> = ids
        .iter()
        .filter(|id| is_meant(id.as_str(), given))
        .collect();
    matches.sort();
    match matches.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(SessionsError::NotFound {
            given: given.to_owned(),
            near: near(&given.to_ascii_uppercase(), &ids),
        }),
        many => Err(SessionsError::Ambiguous {
            given: given.to_owned(),
            matches: many
                .iter()
                .map(|id| short(id.as_str()).to_owned())
                .collect(),
        }),
    }
}

/// Like [`find`], but returns an error for the user.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn resolve(
    log: &dyn Log,
    given: &str,
    flags: &SameFlags,
) -> Result<SessionId, CliError> {
    let found = find(log, given).await;
    found.map_err(|error| error.into_problem(flags))
}

fn near(wanted: &str, ids: &[SessionId]) -> Vec<String> {
    let mut likeness: Vec<(f64, &SessionId)> = ids
        .iter()
        .map(|id| (likeness(wanted, &id.as_str().to_ascii_uppercase()), id))
        .filter(|(likeness, _)| *likeness >= NEAR_MIN)
        .collect();
    likeness.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near = likeness.into_iter().take(NEAR_MAX);
    near.map(|(_, id)| id.to_string()).collect()
}

/// Similarity of two texts: `wanted`, and the first letters of `id`, as many as `wanted` has.
fn likeness(wanted: &str, id: &str) -> f64 {
    let beginning: String = id.chars().take(wanted.chars().count()).collect();
    if wanted.is_empty() {
        return 0.0;
    }
    strsim::normalized_damerau_levenshtein(wanted, &beginning)
}
