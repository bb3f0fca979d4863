//! Empty library: Cargo requires a library or a program in each package.
