//! See `flux::module!` for why what is loaded into a broker stays mapped: a module that links this library is unloaded.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflux-metrics.so.0");
}
