//! The session that somebody means.

use allstop_core::SessionId;
use allstop_log::session::{STREAM_PREFIX, session_of};
use allstop_log::{Log, LogError, SessionSummary, list_sessions};

use super::error::SessionsError;
use crate::error::CliError;
use crate::shell_command::SameFlags;
use crate::short_id::{LAST, is_meant, short};

/// Similar ids that are named at most: more is a list.
const NEAR_MAX: usize = 3;
/// From which likeness on an id is named; 1 is the same. Ids of one hour share a third of their letters.
const NEAR_MIN: f64 = 0.8;

/// Every session, by id.
async fn ids(log: &dyn Log) -> Result<Vec<SessionId>, LogError> {
    let streams = log.list(STREAM_PREFIX).await?;
    Ok(streams.iter().filter_map(|(s, _)| session_of(s)).collect())
}

/// Most digits of a number of the list. Longer ones are part of an id.
const NUMBER_DIGITS_MAX: usize = 4;

/// Sessions, the one that was active last first: their numbers in the list count from 1 in this order.
pub(super) async fn newest_first(log: &dyn Log) -> Result<Vec<SessionSummary>, LogError> {
    let mut sessions = list_sessions(log).await?;
    sessions.sort_by(|a, b| (b.active_at, &b.id).cmp(&(a.active_at, &a.id)));
    Ok(sessions)
}

/// The number of the list that was typed, if it is one: up to four digits, the first of which is not 0.
pub(super) fn list_number(given: &str) -> Option<usize> {
    let is_number = given.len() <= NUMBER_DIGITS_MAX && given.bytes().all(|b| b.is_ascii_digit());
    let number = given
        .parse()
        .ok()
        .filter(|_| is_number && !given.starts_with('0'));
    number.filter(|number| *number > 0)
}

/// The session with this id, or with this number in the list, or the only one that has it as a part; [`LAST`] is
/// the one that was active last.
pub(super) async fn find(log: &dyn Log, given: &str) -> Result<SessionId, SessionsError> {
    let mut ids = ids(log).await?;
    if let Some(at) = ids.iter().position(|id| id.as_str() == given) {
        return Ok(ids.swap_remove(at));
    }
    if given == LAST {
        let newest = newest_first(log).await?.into_iter().next();
        return newest.map(|session| session.id).ok_or(SessionsError::None);
    }
    if let Some(number) = list_number(given) {
        let sessions = newest_first(log).await?;
        let count = sessions.len();
        if count == 0 {
            return Err(SessionsError::None);
        }
        let named = sessions.into_iter().nth(number - 1);
        return named
            .map(|session| session.id)
            .ok_or(SessionsError::NoNumber { number, count });
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

/// The session with this id, or the only one that has it as a part.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
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

/// Similarity of two ids; a beginning is compared with a beginning.
fn likeness(wanted: &str, id: &str) -> f64 {
    let beginning: String = id.chars().take(wanted.chars().count()).collect();
    if wanted.is_empty() {
        return 0.0;
    }
    strsim::normalized_damerau_levenshtein(wanted, &beginning)
}
