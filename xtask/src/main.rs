//! The one door for a maintainer: `cargo xtask COMMAND`.

#[cfg(feature = "bindings")]
mod bindings;

fn main() -> anyhow::Result<()> {
    #[cfg(feature = "bindings")]
    bindings::run(std::path::Path::new("."), std::env::args().any(|a| a == "--check"))?;
    Ok(())
}
