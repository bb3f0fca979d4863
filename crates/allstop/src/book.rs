//! The chapters for embedders. Their samples are compiled as documentation tests.

#[doc = include_str!("../book/first-agent.md")]
mod first_agent {}

#[doc = include_str!("../book/models.md")]
mod models {}

#[doc = include_str!("../book/sessions.md")]
mod sessions {}

#[doc = include_str!("../book/stops.md")]
mod stops {}

#[cfg(feature = "tasks")]
#[doc = include_str!("../book/tasks.md")]
mod tasks {}

#[doc = include_str!("../book/tools.md")]
mod tools {}

#[doc = include_str!("../book/traces.md")]
mod traces {}
