//! Known bugs of other systems. Each was reproduced by running the system, and is quoted above its test. The tests use
//! real shells, a store on disk and real time. For each stop, they measure the time, the remaining processes and the
//! bytes on disk.

mod agent_loop;
mod sessions;
mod support;
