//! Push notifications: configurations, deliveries, and what may not be reached.

mod configs;
mod deliveries;
mod failures;
mod guard;
mod receiver;
mod restart;
mod rig;
mod secrets;
