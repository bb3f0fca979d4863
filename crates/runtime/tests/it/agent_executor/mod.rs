//! Agents as the executor of tasks, with logs in memory.

mod background;
mod live_text;
mod order;
mod questions;
mod recovery;
mod removal;
mod server_questions;
mod stops;
mod stops_elsewhere;
mod support;
mod system;
mod waiting_stops;
