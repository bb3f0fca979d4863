// A process tree alone, without an agent: the stop kills the command and its grandchild, and proves it.

use allstop::core::receipt::ItemKind;
use allstop::prelude::*;
use allstop::process::ProcessSpec;
use allstop::scope::WorkSpec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scope = Scope::root("job", RootOptions::current());
    // Both processes ignore SIGTERM.
    let script = "trap '' TERM; sleep 600 & echo started; wait; sleep 600";
    let marker = format!("example-{}", std::process::id());
    let spec = ProcessSpec::new("sh", marker).args(["-c", script]);
    let (_process, mut output) =
        scope.spawn_process(WorkSpec::new(ItemKind::Process, "sh"), spec)?;
    let mut buffer = [0; 64];
    let len = output.read(&mut buffer).await?;
    print!("{}", String::from_utf8_lossy(&buffer[..len]));

    let request = StopRequest::new(Extent::Process, CauseKind::User.into())
        .grace(std::time::Duration::from_millis(100));
    let receipt = scope.stop(request).await;
    println!("{receipt}");
    for item in receipt.items() {
        println!("{}: {}", item.name, serde_json::to_value(&item.state)?);
    }
    Ok(())
}
