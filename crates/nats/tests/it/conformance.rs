//! The conformance tests that every log must pass, with one server and with three servers.

use std::sync::Arc;

use allstop_task::WakeUpQueue;

use crate::support::{on_one_server, on_three_servers};

allstop_log::log_conformance!(one_server, on_one_server());
allstop_log::log_conformance!(three_servers, on_three_servers());
allstop_task::wake_up_conformance!(work_queue, async {
    let (log, kept) = on_one_server().await;
    let link = log.link().await.expect("the servers have a link");
    (link as Arc<dyn WakeUpQueue>, (log, kept))
});
