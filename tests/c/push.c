/* Counts known numbers for a while, and says what it counted.
 *
 * push MODE SECONDS TAG: as crates/flux-metrics/examples/push.rs, and in C++ too.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flux-metrics.h"
#include "libflux.h"

#define BEAT 0.01

struct counting {
    flux_t *h;
    flux_counter_t *count;
    char wait[80];
    long long counted;
    long long beats;
    double until;
};

static double now (void)
{
    struct timespec time;
    clock_gettime (CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void die (const char *what)
{
    perror (what);
    exit (1);
}

static void beat (struct counting *c)
{
    int64_t n = 1 + c->counted % 7;
    flux_counter_add (c->count, n);
    if (flux_metric_timing (c->h, c->wait, 0.005) < 0)
        die ("flux_metric_timing");
    c->counted += n;
    c->beats++;
}

static void on_timer (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct counting *c = (struct counting *)arg;
    (void)w;
    (void)revents;
    beat (c);
    if (now () >= c->until)
        flux_reactor_stop (r);
}

int main (int argc, char **argv)
{
    struct counting c;
    char name[80];
    if (argc != 4)
        return 2;
    memset (&c, 0, sizeof (c));
    if (!(c.h = flux_open_ex (NULL, 0, NULL)))
        die ("flux_open_ex");
    c.until = now () + atof (argv[2]);
    snprintf (name, sizeof (name), "push.count;by=%s", argv[3]);
    snprintf (c.wait, sizeof (c.wait), "push.wait_s;by=%s", argv[3]);
    if (!(c.count = flux_metric_counter (c.h, name)))
        die ("flux_metric_counter");
    if (!strcmp (argv[1], "reactor")) {
        flux_reactor_t *r = flux_get_reactor (c.h);
        flux_watcher_t *w = flux_timer_watcher_create (r, BEAT, BEAT, on_timer, &c);
        if (flux_metric_instrument (c.h) < 0)
            die ("flux_metric_instrument");
        flux_watcher_start (w);
        if (flux_reactor_run (r, 0) < 0)
            die ("flux_reactor_run");
        flux_watcher_destroy (w);
    }
    else if (!strcmp (argv[1], "plain")) {
        struct timespec pause = {0, (long)(BEAT * 1e9)};
        while (now () < c.until) {
            beat (&c);
            nanosleep (&pause, NULL);
        }
    }
    else
        beat (&c);
    printf ("{\"count\":%lld,\"samples\":%lld}\n", c.counted, c.beats);
    if (flux_metric_close (c.h, 10.0) < 0)
        die ("flux_metric_close");
    flux_counter_destroy (c.count);
    flux_close (c.h);
    return 0;
}
