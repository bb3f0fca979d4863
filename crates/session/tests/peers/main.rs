//! Known bugs of other systems. Each was reproduced by running the system, and is quoted above its test. The tests use
//! real shells, a store on disk and real time. They measure a stop in time, in remaining processes and in bytes on
//! disk.

mod agent_loop;
mod sessions;
mod support;
