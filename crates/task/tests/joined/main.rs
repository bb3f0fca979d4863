//! Repeats the tests of a manager that owns its store alone. Here, the manager is a node of a cluster.

#[path = "../it/cancel.rs"]
mod cancel;
#[path = "../it/contract.rs"]
mod contract;
#[path = "../it/execute.rs"]
mod execute;
#[path = "../it/failures.rs"]
mod failures;
#[path = "../it/hostile.rs"]
mod hostile;
#[path = "../it/limits.rs"]
mod limits;
#[path = "../it/observe.rs"]
mod observe;
mod opening;
#[path = "../it/subscribe.rs"]
mod subscribe;
#[path = "../it/support.rs"]
mod support;
