//! Behaviour of the parts of a server, through the public interface.

mod accept;
mod places;
