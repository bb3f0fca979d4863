//! Known bugs of other systems, each reproduced by running the system and quoted above its test. Real shells, a store
//! on disk and real time: a stop is measured in time, in processes that are left and in bytes on disk.

mod agent_loop;
mod sessions;
mod support;
