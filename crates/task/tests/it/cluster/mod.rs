//! Tests with several managers that share one log.

mod accepted_messages;
mod admission;
mod busy_workers;
mod dice;
mod late_receipts;
mod limits;
mod line;
mod live_text;
mod lost_lease;
mod messages;
mod parts;
mod races;
mod retention;
mod seeded_bug;
mod simulation;
mod stops;
mod store_races;
mod support;
mod take_over;
pub(crate) mod trap;
