//! The smallest program that counts; docs/module-author.md shows it.

use flux_metrics::Metrics;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let handle = flux::Client::open(None)?;
    let metrics = Metrics::of(&handle)?;
    metrics.count("app.requests", 3);
    metrics.set_gauge("app.queue_depth", 17.0);
    metrics.timing("app.fetch_s", Duration::from_millis(12));
    metrics.close(Duration::from_secs(2))?;
    Ok(())
}
