//! The log through its public face.

mod session;
