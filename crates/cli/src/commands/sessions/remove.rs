//! `sessions rm`.

use allstop_log::{Log, read_session, remove_session};
use allstop_terminal::styled;

use super::Printed;
use super::error::SessionsError;
use super::find::find;
use super::view::Work;

/// Removes the sessions one after another, and stops at the first session that cannot be removed. All ids are resolved
/// before the first removal, so after a typing error nothing is removed.
pub(super) async fn remove(
    log: &dyn Log,
    given: &[String],
    print: &mut (dyn FnMut(Printed) + Send),
) -> Result<(), SessionsError> {
    let mut ids = Vec::new();
    for given in given {
        let id = find(log, given).await?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    for id in ids {
        // An unreadable session is removed without this check, because no other command can use it.
        if let Ok((state, _)) = read_session(log, &id).await {
            let works = state.background().iter().map(Work::of);
            let running: Vec<String> = works
                .filter(|work| work.alive == Some(true))
                .map(|work| match work.stop_pid {
                    Some(pid) => format!("{} (pid {pid})", work.name),
                    None => work.name.to_owned(),
                })
                .collect();
            if !running.is_empty() {
                let id = id.to_string();
                return Err(SessionsError::StillRuns { id, running });
            }
        }
        remove_session(log, &id).await?;
        print(Printed::Text(styled![format_args!("removed {id}")]));
    }
    Ok(())
}
