//! A run that hangs, wherever it can hang, and every way to end it.

mod alone;
mod places;
