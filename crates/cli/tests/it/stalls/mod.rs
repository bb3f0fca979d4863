//! The matrix of stalls: every place where a file, `/proc`, the store, a reader, the terminal, the network or standard input
//! can hang, and every way to stop. However it is stopped, a run ends in time, with the right exit code, one envelope,
//! and a receipt that agrees with what is left and with the log.

mod chat;
mod network;
mod output;
mod proc;
mod stall;
mod start;
mod store;
mod turn;
mod way;
