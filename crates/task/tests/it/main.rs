//! Tests of tasks through the manager, from the point of view of clients and executors.

mod blocking;
mod cancel;
mod cluster;
mod contract;
mod crash;
mod crash_everywhere;
mod damaged_store;
mod execute;
mod failures;
mod hostile;
mod kept_queue;
mod limits;
mod live_text;
mod observe;
mod opening;
mod panics;
mod random;
mod refusals;
mod retention;
mod scale;
mod stop_everywhere;
mod store_faults;
mod subscribe;
mod support;
mod unreadable;
