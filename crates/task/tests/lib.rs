//! Empty: Cargo requires a library or a program beside the tests.
