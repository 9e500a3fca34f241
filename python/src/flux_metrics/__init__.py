"""Metrics of a Python program, merged over a whole Flux instance.

Counts stay in the process. Once a period one message brings them to the module ``stats-agg`` of the handle's broker,
which merges them up the tree with everybody else's::

    import flux_metrics

    with flux_metrics.connect() as metrics:
        metrics.count("app.requests")
        metrics.gauge("app.depth", 17)
        with metrics.timing("app.fetch_s"):
            fetch()

Names are dotted words of ``A-Z a-z 0-9 _ -``; those that begin with ``modules.``, ``broker.``, ``stats-agg.``, ``jobs.``,
``resources.``, ``overlay.`` or ``guests.`` are the service's own. Times are in seconds. What makes no sense (a malformed name, a number
that is not finite) is a ``ValueError``.
"""

from ._metrics import Metrics, NoInstance, connect
from ._values import SERIES_MAX

__all__ = ["Metrics", "NoInstance", "SERIES_MAX", "connect"]
