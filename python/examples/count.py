"""The smallest program that counts; docs/module-author.md shows it."""

import flux_metrics

with flux_metrics.connect() as metrics:
    metrics.count("app.requests", 3)
    metrics.gauge("app.queue_depth", 17)
    metrics.record("app.fetch_s", 0.012)
