//! `cargo xtask bindings [--check]`: flux-sys/src/bindings.rs from include/libflux.h.

use anyhow::{Context, Result, bail};
use std::path::Path;

const HEADER: &str = "include/libflux.h";
const BINDINGS: &str = "flux-sys/src/bindings.rs";

/// Writes the bindings, or with `check` fails when the checked-in file differs.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let generated = generate(&root.join(HEADER))?;
    let path = root.join(BINDINGS);
    if !check {
        return std::fs::write(&path, generated).with_context(|| format!("writing {}", path.display()));
    }
    let present = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    if present != generated {
        bail!("{BINDINGS} differs from {HEADER}: run `cargo xtask bindings` and commit the result");
    }
    println!("{BINDINGS} agrees with {HEADER}");
    Ok(())
}

fn generate(header: &Path) -> Result<String> {
    let bindings = bindgen::Builder::default()
        .header(header.to_str().context("the path of the header is not UTF-8")?)
        .allowlist_item("(flux|FLUX)_.*")
        .blocklist_item("FLUX_STATS_.*")
        .dynamic_library_name("LibFlux")
        .dynamic_link_require_all(false)
        .default_macro_constant_type(bindgen::MacroTypeVariation::Unsigned)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .rust_target(bindgen::RustTarget::stable(88, 0).map_err(|e| anyhow::anyhow!("{e}"))?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .merge_extern_blocks(true)
        .disable_header_comment()
        .raw_line("// Generated from include/libflux.h by `cargo xtask bindings`: do not edit.")
        .generate()
        .context("bindgen refused the header")?;
    Ok(bindings.to_string())
}
