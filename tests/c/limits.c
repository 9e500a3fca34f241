/* Every argument that makes no sense has a defined result. In C and in C++. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flux-metrics.h"
#include "libflux.h"

static int failures;

/* The call fails with this errno. */
#define FAILS(call, number)                                                                  \
    do {                                                                                     \
        errno = 0;                                                                           \
        if (!(call) || errno != (number)) {                                                  \
            fprintf (stderr, "%d: %s: errno %d, expected %d\n", __LINE__, #call, errno, (number)); \
            failures++;                                                                      \
        }                                                                                    \
    } while (0)

#define WORKS(call)                                                               \
    do {                                                                          \
        errno = 0;                                                                \
        if (!(call)) {                                                            \
            fprintf (stderr, "%d: %s: errno %d\n", __LINE__, #call, errno);       \
            failures++;                                                           \
        }                                                                         \
    } while (0)

/* What every function that takes a name does with bad ones. */
#define NAMES(call)                                \
    do {                                           \
        size_t i;                                  \
        for (i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) { \
            const char *name = bad[i];             \
            FAILS (call, EINVAL);                  \
        }                                          \
        {                                          \
            const char *name = "modules.kvs.mine"; \
            FAILS (call, EPERM);                   \
        }                                          \
    } while (0)

int main (void)
{
    static char long_name[300];
    static char long_member[300];
    const char *bad[] = {
        NULL, "", ".", "a..b", ".a", "a.", "a b", "a/b", "\xff\xfe", "\xc3\xa4", long_name,
        "a;", "a;k", "a;k=", "a;=v", "a;k=v;", "a;k=\x01", "a;1=1;2=2;3=3;4=4;5=5;6=6;7=7;8=8;9=9;10=1;11=1;"
        "12=1;13=1;14=1;15=1;16=1;17=1",
    };
    flux_t *h;
    int i;
    memset (long_name, 'x', sizeof (long_name) - 1);
    memset (long_member, 'm', sizeof (long_member) - 1);

    /* No handle. */
    FAILS (flux_metric_count (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_gauge (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_gauge_add (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_timing (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_histogram (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_set (NULL, "a", "m") == -1, EINVAL);
    FAILS (!flux_metric_counter (NULL, "a"), EINVAL);
    FAILS (!flux_metric_gauge_handle (NULL, "a"), EINVAL);
    FAILS (!flux_metric_timer (NULL, "a"), EINVAL);
    FAILS (!flux_metric_histogram_handle (NULL, "a"), EINVAL);
    FAILS (flux_metric_period (NULL, "a", 1) == -1, EINVAL);
    FAILS (flux_metric_instrument (NULL) == -1, EINVAL);
    FAILS (flux_metric_flush (NULL, 1) == -1, EINVAL);
    FAILS (flux_metric_close (NULL, 1) == -1, EINVAL);

    if (!(h = flux_open_ex (NULL, 0, NULL))) {
        perror ("flux_open_ex");
        return 1;
    }
    /* Nothing was counted. */
    WORKS (flux_metric_close (h, 1) == 0);

    NAMES (flux_metric_count (h, name, 1) == -1);
    NAMES (flux_metric_gauge (h, name, 1) == -1);
    NAMES (flux_metric_gauge_add (h, name, 1) == -1);
    NAMES (flux_metric_timing (h, name, 1) == -1);
    NAMES (flux_metric_histogram (h, name, 1) == -1);
    NAMES (flux_metric_set (h, name, "m") == -1);
    NAMES (!flux_metric_counter (h, name));
    NAMES (!flux_metric_gauge_handle (h, name));
    NAMES (!flux_metric_timer (h, name));
    NAMES (!flux_metric_histogram_handle (h, name));

    FAILS (flux_metric_gauge (h, "c.g", NAN) == -1, EINVAL);
    FAILS (flux_metric_gauge (h, "c.g", INFINITY) == -1, EINVAL);
    FAILS (flux_metric_gauge_add (h, "c.g", -INFINITY) == -1, EINVAL);
    FAILS (flux_metric_timing (h, "c.t", NAN) == -1, EINVAL);
    FAILS (flux_metric_timing (h, "c.t", -1e-9) == -1, EINVAL);
    FAILS (flux_metric_timing (h, "c.t", INFINITY) == -1, EINVAL);
    FAILS (flux_metric_timing (h, "c.t", 1e300) == -1, EINVAL);
    FAILS (flux_metric_histogram (h, "c.h", NAN) == -1, EINVAL);
    FAILS (flux_metric_histogram (h, "c.h", -1) == -1, EINVAL);
    FAILS (flux_metric_histogram (h, "c.h", 1e13) == -1, EINVAL);
    FAILS (flux_metric_set (h, "c.s", NULL) == -1, EINVAL);
    FAILS (flux_metric_set (h, "c.s", "") == -1, EINVAL);
    FAILS (flux_metric_set (h, "c.s", "\xff") == -1, EINVAL);
    FAILS (flux_metric_set (h, "c.s", long_member) == -1, EINVAL);
    FAILS (flux_metric_period (h, NULL, 1) == -1, EINVAL);
    FAILS (flux_metric_period (h, "a..b", 1) == -1, EINVAL);
    FAILS (flux_metric_period (h, "modules.x", 1) == -1, EPERM);
    FAILS (flux_metric_period (h, "p", NAN) == -1, EINVAL);
    FAILS (flux_metric_period (h, "p", -1) == -1, EINVAL);
    FAILS (flux_metric_flush (h, NAN) == -1, EINVAL);
    FAILS (flux_metric_flush (h, -1) == -1, EINVAL);

    /* NULL is nothing. */
    errno = 77;
    flux_counter_add (NULL, 1);
    flux_gauge_set (NULL, 1);
    flux_gauge_add (NULL, 1);
    flux_timing_record (NULL, 1);
    flux_timing_record_ns (NULL, 1);
    flux_histogram_record (NULL, 1);
    flux_counter_destroy (NULL);
    flux_gauge_destroy (NULL);
    flux_timing_destroy (NULL);
    flux_histogram_destroy (NULL);
    WORKS (flux_metric_close (h, 1) == 0);

    /* Extremes, and what is dropped. */
    {
        flux_counter_t *c = flux_metric_counter (h, "c.extreme");
        flux_gauge_t *g = flux_metric_gauge_handle (h, "c.gauge");
        flux_timing_t *t = flux_metric_timer (h, "c.time_s");
        flux_histogram_t *n = flux_metric_histogram_handle (h, "c.bytes");
        WORKS (c && g && t && n);
        for (i = 0; i < 3; i++) {
            flux_counter_add (c, INT64_MAX);
            flux_counter_add (c, INT64_MIN);
        }
        flux_counter_add (c, 10);
        flux_gauge_set (g, NAN);
        flux_gauge_set (g, 2.5);
        flux_gauge_add (g, INFINITY);
        flux_gauge_add (g, 1);
        flux_timing_record (t, NAN);
        flux_timing_record (t, -1);
        flux_timing_record (t, 0.25);
        flux_timing_record_ns (t, 750000000);
        flux_histogram_record (n, 0);
        flux_histogram_record (n, 4096);
        flux_histogram_record (n, -1);
        /* One series in two spellings, and one name for two types. */
        WORKS (flux_metric_count (h, "c.tags;a=1;b=2", 1) == 0);
        WORKS (flux_metric_count (h, "c.tags;b=2;a=1", 2) == 0);
        WORKS (flux_metric_gauge (h, "c.tags", 5) == 0);
        WORKS (flux_metric_set (h, "c.members", "one") == 0);
        WORKS (flux_metric_set (h, "c.members", "one") == 0);
        WORKS (flux_metric_set (h, "c.members", "two") == 0);
        WORKS (flux_metric_period (h, "own", 0.2) == 0);
        WORKS (flux_metric_period (h, "own", 0.2) == 0);
        WORKS (flux_metric_count (h, "own.count", 3) == 0);
        WORKS (flux_metric_instrument (h) == 0);
        WORKS (flux_metric_instrument (h) == 0);
        WORKS (flux_metric_flush (h, 10) == 0);
        WORKS (flux_metric_close (h, 10) == 0);
        /* Held beyond the close: nothing happens. */
        flux_counter_add (c, 1000);
        flux_counter_destroy (c);
        flux_gauge_destroy (g);
        flux_timing_destroy (t);
        flux_histogram_destroy (n);
    }
    /* Anew. */
    WORKS (flux_metric_count (h, "c.again", 4) == 0);
    WORKS (flux_metric_close (h, 10) == 0);

    /* More series than a handle keeps. */
    for (i = 0; i < 10000; i++) {
        char name[32];
        snprintf (name, sizeof (name), "many.n%d", i);
        if (flux_metric_gauge (h, name, 1) < 0) {
            WORKS (0 && "10,000 series");
            break;
        }
    }
    FAILS (flux_metric_count (h, "many.more", 1) == -1, ENOSPC);
    WORKS (flux_metric_gauge (h, "many.n0", 2) == 0);
    /* Closed without a word: what was counted last is lost, and no more. */
    flux_close (h);

    /* Handles that come and go at the same address are not taken for each other. */
    for (i = 0; i < 20; i++) {
        if (!(h = flux_open_ex (NULL, 0, NULL))) {
            perror ("flux_open_ex");
            return 1;
        }
        WORKS (flux_metric_count (h, "c.handles", 1) == 0);
        if (i % 2)
            WORKS (flux_metric_close (h, 10) == 0);
        flux_close (h);
    }
    return failures ? 1 : 0;
}
