//! Looks at the machine: processes that carry a mark, connections of the server, files that this process holds open.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use allstop_core::receipt::{EndProof, ItemState};
use allstop_core::{Extent, Receipt};

use super::after::SLACK;
use super::real_parts::{BACKGROUND, RealParts};
use crate::observe::MachineLook;

/// The variable that marks the processes of one run, and whatever they start.
pub(super) const MARK: &str = "ALLSTOP_EXPLORE_RUN";

/// Looks at processes and connections when an answer is there.
pub(super) async fn look(
    parts: &RealParts,
    extent: Extent,
    receipt: Option<Arc<Receipt>>,
) -> MachineLook {
    let (background, running) = running(&parts.mark())
        .into_iter()
        .partition(|line| line.contains(BACKGROUND));
    let items = receipt.iter().flat_map(|receipt| receipt.items());
    let closed_a_connection = items.into_iter().any(|item| match &item.state {
        // Of a call that was not sent yet the connection may be there, unused since the last one.
        ItemState::Stopped { evidence, .. } => evidence.proof() == Some(EndProof::SocketClosed),
        _ => false,
    });
    let connections = if closed_a_connection {
        // The other end notices a moment later.
        let seen = parts
            .server
            .wait_until(SLACK, |seen| seen.open() == 0)
            .await;
        seen.map_or_else(|seen| seen.open(), |_| 0)
    } else {
        0
    };
    MachineLook {
        extent,
        receipt,
        running,
        background,
        connections,
    }
}

/// The command lines of the living processes with this mark. A zombie has no environment any more.
pub(super) fn running(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == wanted.as_bytes())
        })
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // One that ends between the two looks has none.
            (!line.is_empty()).then(|| line.trim_end().to_owned())
        })
        .collect()
}

/// The files below this folder that this process holds open.
pub(super) fn open_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.starts_with(folder))
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}
