//! The examples are modules (Cargo applies `rustc-link-arg-examples` to programs only): see `flux::module!` for why they stay mapped.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,-z,nodelete");
}
