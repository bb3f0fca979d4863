//! Every place where a file, `/proc`, the store, a reader, the terminal, the network or standard input can hang (a
//! stall), combined with every way to stop. A run always ends in time, with the right exit code and one envelope (JSON
//! result). The receipt of the stop agrees with the remaining processes and with the log.

mod chat;
mod network;
mod output;
mod proc;
mod stall;
mod start;
mod stop_method;
mod store;
mod turn;
