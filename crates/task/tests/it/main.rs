//! Tasks through their manager, as a client and an executor see them.

mod cancel;
mod crash;
mod execute;
mod failures;
mod limits;
mod subscribe;
mod support;
