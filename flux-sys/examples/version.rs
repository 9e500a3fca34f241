//! Prints the version of the libflux that this process gets, or why it gets none.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let libflux = flux_sys::libflux().map_err(|error| error.to_string())?;
    println!("flux-core {} ({:?})", libflux.version(), libflux.source());
    Ok(())
}
