// A scope alone, without an agent: it contains any asynchronous work and threads. One stop ends all of it.

use std::time::Duration;

use allstop::core::receipt::ItemKind;
use allstop::prelude::*;
use allstop::scope::{ScopeOptions, WorkSpec};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scope = Scope::root("import", RootOptions::current());
    let tables = scope.child("tables", ScopeOptions::default())?;
    for table in ["users", "orders"] {
        let spec = WorkSpec::new(ItemKind::Future, table);
        tables.spawn(spec, |cx| async move {
            tokio::select! {
                cause = cx.stopped_at("between rows") => drop(cause),
                () = tokio::time::sleep(Duration::from_mins(10)) => {}
            }
        })?;
    }
    let spec = WorkSpec::new(ItemKind::Thread, "checksum");
    scope.spawn_blocking(spec, |cx| {
        while cx.checkpoint("block").is_ok() {
            std::hint::spin_loop();
        }
    })?;

    println!("{}", scope.preview(Extent::Process, CauseKind::User.into()));
    let receipt = scope
        .stop(StopRequest::new(Extent::Process, CauseKind::User.into()))
        .await;
    println!("{receipt}");
    let mut names: Vec<_> = receipt
        .items()
        .iter()
        .map(|item| item.name.to_string())
        .collect();
    names.sort();
    println!(
        "{} of {} stopped: {}",
        names.len(),
        receipt.items().len(),
        names.join(", ")
    );
    // After a stop no work starts.
    assert!(
        scope
            .spawn(WorkSpec::new(ItemKind::Future, "late"), |_| async {})
            .is_err()
    );
    Ok(())
}
