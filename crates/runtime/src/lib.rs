//! Configuration made into a running system.
