//! Translations of scripted events.
