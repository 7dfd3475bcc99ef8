//! The one binary: daemon and command line, glue only.
fn main() {}
