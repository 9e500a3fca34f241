/* The smallest program that counts; docs/module-author.md shows it. */
#include <stdio.h>

#include "flux-metrics.h"
#include "libflux.h" /* of an installation: <flux/core.h> */

int main (void)
{
    flux_t *h = flux_open_ex (NULL, 0, NULL);
    if (!h) {
        perror ("flux_open_ex");
        return 1;
    }
    flux_metric_count (h, "app.requests", 3);
    flux_metric_gauge (h, "app.queue_depth", 17);
    flux_metric_timing (h, "app.fetch_s", 0.012);
    if (flux_metric_close (h, 2.0) < 0)
        perror ("flux_metric_close");
    flux_close (h);
    return 0;
}
