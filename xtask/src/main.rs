//! The one door for a maintainer.
fn main() {}
