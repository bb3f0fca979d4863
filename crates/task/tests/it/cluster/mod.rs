//! Several managers over one log.

mod dice;
mod line;
mod messages;
mod stops;
mod support;
mod take_over;
