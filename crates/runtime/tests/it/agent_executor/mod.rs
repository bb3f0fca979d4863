//! Agents as the executor of tasks, over logs in memory.

mod background;
mod order;
mod questions;
mod recovery;
mod stops;
mod stops_elsewhere;
mod support;
mod system;
mod waiting_stops;
