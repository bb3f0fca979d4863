//! End of a chat: lists the running work, stops or detaches this work, and closes the store. Detached work keeps
//! running on purpose. No step lasts beyond the time at which the process must exit.

use std::time::Instant;

use allstop_core::{Cause, CauseKind};
use allstop_session::StopTarget;

use super::OpenChat;
use crate::exit::Exit;
use crate::shell_quote::quoted;
use crate::short_id::short;
use crate::shutdown::{self, SessionClosing};
use crate::supervise::Supervisor;

/// Ends a chat. `cause` is set if a signal requested the end. Otherwise `code` is the exit code.
pub(super) async fn leave(
    mut chat: OpenChat<'_>,
    mut supervisor: Supervisor,
    cause: Option<Cause>,
    code: u8,
) -> Exit {
    let code = match &cause {
        Some(_) => supervisor
            .control
            .exit_code(supervisor.control.stop_reason()),
        None => code,
    };
    chat.view.input_line(None);
    // From now on, no output of a running turn is shown. The receipt of the stop below reports the result of the turn.
    chat.view.end_turn(None);
    let cause = cause.unwrap_or_else(|| {
        let cause = match code {
            0 => Cause::new(CauseKind::User).detail("the chat was left"),
            _ => Cause::new(CauseKind::Parent).detail("the chat has ended"),
        };
        cause.by("cli")
    });
    chat.system.mcp().end_with_stopped_calls();
    if chat.keeps_background {
        if chat.session.is_busy() {
            // Background work can be detached only between two turns, so stop the running turn.
            stop(&chat, &mut supervisor, StopTarget::Turn, &cause).await;
        }
        keep_background(&chat, &mut supervisor).await;
    }
    // The stop is needed only if work runs. Detached work has been listed already.
    let has_work = name_running(&chat) || chat.session.is_busy();
    if has_work {
        stop(&chat, &mut supervisor, StopTarget::Session, &cause).await;
    }
    let id = chat.session.id();
    let resume = chat
        .flags
        .command(&format!("sessions resume {}", short(id.as_str())));
    chat.view
        .hint(&format!("session {id} · to continue: {resume}"));
    let closing = SessionClosing {
        session: &chat.session,
        system: &chat.system,
        store_failed: false,
        writes_back: true,
        force: false,
    };
    let closed = closing.close(&mut supervisor, std::future::ready(())).await;
    for receipt in &closed.receipts {
        chat.show_receipt(receipt);
    }
    if let Some(said) = closed.recording {
        chat.view.note(&match said {
            Ok(path) => {
                let script = format!("script:{}", path.display());
                format!("recorded: allstop chat --model {}", quoted(&script))
            }
            Err(why) => why,
        });
    }
    // Other terminals may have requested stops. Wait until each of them has received its receipt.
    let answered = chat.remote.listener.answered();
    let _answered_or_late = supervisor.wait_to_exit(answered, |_| {}).await;
    supervisor.control.end(Instant::now());
    Exit {
        code,
        output_wait: Some(supervisor.control.time_left(Instant::now())),
    }
}

/// Stops a part of the session and shows the receipt. If the process must exit before the receipt is complete, shows
/// the state of the work at that moment.
async fn stop(chat: &OpenChat<'_>, supervisor: &mut Supervisor, target: StopTarget, cause: &Cause) {
    let stopping = chat.session.stop(&target, cause.clone());
    let receipt = supervisor
        .wait_to_exit(stopping.receipt(), |_| stopping.force())
        .await
        .unwrap_or_else(|| stopping.account_now());
    if !receipt.items().is_empty() {
        chat.show_receipt(&receipt);
    }
}

/// Lists the running background work, which is stopped next. True if any work runs.
fn name_running(chat: &OpenChat<'_>) -> bool {
    let mut works = chat.session.background();
    works.retain(|work| work.is_running());
    for work in &works {
        let said = format!("stopping {}: {}", work.id, work.name);
        chat.view.note(&said);
    }
    !works.is_empty()
}

async fn keep_background(chat: &OpenChat<'_>, supervisor: &mut Supervisor) {
    for said in shutdown::detach_background(&chat.session, &chat.store_flags, supervisor).await {
        chat.view.note(&said);
    }
}
