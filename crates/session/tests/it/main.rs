//! Sessions through their handles: scripted models, closures for tools, paused time.

mod follow_ups;
mod support;
