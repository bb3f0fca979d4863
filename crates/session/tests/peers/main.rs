//! Where other systems fail their users, one named test each: what they do wrong was reproduced by running them, and is
//! told above each test. Real shells, a store on disk and real time: stopping is measured in time, in processes that are
//! left and in bytes on disk.

mod agent_loop;
mod sessions;
mod support;
