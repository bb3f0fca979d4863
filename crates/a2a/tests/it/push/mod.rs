//! Push notifications: configurations, deliveries, and forbidden addresses.

mod configs;
mod deliveries;
mod failures;
mod guard;
mod receiver;
mod removal;
mod restart;
mod rig;
mod secrets;
mod v0_3;
