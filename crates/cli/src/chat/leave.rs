//! The way out: what still runs is named and stopped, or let go on purpose, and the store is closed. All of it within
//! the grace, the force, and a second.

use std::time::{Duration, Instant};

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Receipt};
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_session::{StopTarget, Stopping};
use tokio::time::timeout;

use super::Chat;
use crate::Exit;
use crate::control::{self, Control};

/// How long the store may take to close: what it has acknowledged is safe without.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long it may take to let background work go: its keeper answers within a millisecond, its record within a second.
const DETACH_MAX: Duration = Duration::from_secs(2);
/// What output still gets when the last moment has come.
const OUTPUT_WAIT_LAST: Duration = Duration::from_millis(30);

/// Ends a chat. `cause`: a signal asked for it. `code`: the exit code, where no signal has a say.
pub(super) async fn leave(
    mut chat: Chat<'_>,
    mut control: Control,
    cause: Option<Cause>,
    code: u8,
) -> Exit {
    let code = match &cause {
        Some(_) => control.exit_code(control.stop_reason()),
        None => code,
    };
    chat.screen.entry(None);
    // Nothing more is shown of a turn that runs: its account is in the receipt.
    chat.screen.end_turn(None);
    let cause = cause.unwrap_or_else(|| {
        Cause::new(CauseKind::User)
            .detail("the chat was left")
            .by("cli")
    });
    control.stopping(Instant::now());
    if chat.keeps_background {
        if chat.session.is_busy() {
            // Work is let go between two turns.
            let stopping = chat.session.stop(&StopTarget::Turn, cause.clone());
            let receipt = race(&mut chat, &mut control, &stopping).await;
            chat.screen.receipt(&receipt);
        }
        keep_background(&chat).await;
    }
    // Where nothing runs there is nothing to account for; what was let go has been named.
    let has_work = name_running(&chat) || chat.session.is_busy();
    let stopping = chat.session.stop(&StopTarget::Session, cause);
    let receipt = race(&mut chat, &mut control, &stopping).await;
    if has_work && !receipt.items().is_empty() {
        chat.screen.receipt(&receipt);
    }
    if chat.screen.is_typed_into() {
        let id = chat.session.id();
        chat.screen.hint(&format!(
            "session {id} · go on: allstop sessions resume {id}"
        ));
    }
    let closing = async {
        drop(timeout(CLOSE_WAIT_MAX, chat.session.close()).await);
        save_recording(&chat).await;
        drop(timeout(CLOSE_WAIT_MAX, chat.system.close()).await);
    };
    let at = control.last_moment().unwrap_or_else(Instant::now);
    drop(tokio::time::timeout_at(at.into(), closing).await);
    Exit {
        code,
        output_wait: Some(
            at.saturating_duration_since(Instant::now())
                .max(OUTPUT_WAIT_LAST),
        ),
    }
}

/// Waits for the receipt; a signal forces, and at the last moment it is the account of that moment.
async fn race(
    chat: &mut Chat<'_>,
    control: &mut Control,
    stopping: &Stopping,
) -> std::sync::Arc<Receipt> {
    let receipt = stopping.receipt();
    tokio::pin!(receipt);
    loop {
        let at = control.last_moment().unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            signal = chat.signals.next() => match control.signal(signal, Instant::now()) {
                control::Effect::Nothing => {}
                control::Effect::Stop(_) | control::Effect::Force => stopping.force(),
            },
            receipt = &mut receipt => return receipt,
            () = tokio::time::sleep_until(at.into()) => return stopping.account_now(),
        }
    }
}

/// Names the background work that is about to be stopped, and says whether there is any.
fn name_running(chat: &Chat<'_>) -> bool {
    let mut works = chat.session.background();
    works.retain(|work| work.is_running());
    for work in &works {
        let said = format!("{} still runs, and is stopped: {}", work.id, work.name);
        chat.screen.note(&said);
    }
    !works.is_empty()
}

async fn keep_background(chat: &Chat<'_>) {
    for work in chat.session.background() {
        if !work.is_running() {
            continue;
        }
        let keeper = work
            .process()
            .and_then(|process| process.handle().keeper_identity().cloned());
        let said = match timeout(DETACH_MAX, chat.session.detach(&work.id)).await {
            Ok(Ok(())) => {
                let end = keeper.map_or(String::new(), |keeper| {
                    format!(" · end it: kill {}", keeper.pid)
                });
                format!("{} runs on: {}{end}", work.id, work.name)
            }
            Ok(Err(error)) => format!("{} cannot be left running: {error}", work.id),
            Err(_elapsed) => format!("{} cannot be left running: it takes too long", work.id),
        };
        chat.screen.note(&said);
    }
}

/// Writes the script of a recorded chat.
async fn save_recording(chat: &Chat<'_>) {
    let Some(recording) = chat.system.recording().cloned() else {
        return;
    };
    let path = recording.path().display().to_string();
    // In a scope of its own: a disk may block.
    let scope = Scope::root("recording", RootOptions::current());
    let spec = WorkSpec::new(ItemKind::Thread, "recording");
    let Ok(saving) = scope.spawn_blocking(spec, move |_| recording.save()) else {
        return;
    };
    let said = match timeout(CLOSE_WAIT_MAX, saving).await {
        Ok(Ok(Ok(()))) => format!("recorded: allstop chat --model script:{path}"),
        Ok(Ok(Err(error))) => format!("the recording {path} is not written: {error}"),
        Ok(Err(_)) | Err(_) => format!("the recording {path} is not written"),
    };
    chat.screen.note(&said);
}
