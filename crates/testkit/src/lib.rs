//! Parts for tests of things that stop: scripted models, faults, left-over checks.

pub mod llama;
pub mod openai_server;
