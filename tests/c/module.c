/* A broker module in C that counts: `rate` times a second, in a timer of its reactor; NAME.said tells what it has
 * counted, and NAME.stop ends it and delivers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flux-metrics.h"
#include "libflux.h"

struct counting {
    flux_t *h;
    flux_watcher_t *timer;
    flux_counter_t *count;
    long long counted;
    long long beats;
};

static void on_timer (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg)
{
    struct counting *c = arg;
    (void)r;
    (void)w;
    (void)revents;
    int64_t n = 1 + c->counted % 5;
    flux_counter_add (c->count, n);
    flux_metric_timing (c->h, "cmodule.beat_s", 0.001);
    flux_metric_gauge (c->h, "cmodule.beats", (double)++c->beats);
    c->counted += n;
}

static void respond (struct counting *c, const flux_msg_t *msg)
{
    char text[100];
    snprintf (text, sizeof (text), "{\"count\":%lld,\"beats\":%lld}", c->counted, c->beats);
    flux_respond (c->h, msg, text);
}

static void on_stop (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    struct counting *c = arg;
    (void)mh;
    flux_watcher_stop (c->timer);
    if (flux_metric_flush (h, 5.0) < 0)
        flux_respond_error (h, msg, errno, "flux_metric_flush");
    else
        respond (c, msg);
}

static void on_said (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg)
{
    (void)h;
    (void)mh;
    respond (arg, msg);
}

static flux_msg_handler_t *handle (struct counting *c, const char *method, flux_msg_handler_f f)
{
    char topic[100];
    snprintf (topic, sizeof (topic), "%s.%s", (const char *)flux_aux_get (c->h, "flux::name"), method);
    struct flux_match match = {FLUX_MSGTYPE_REQUEST, FLUX_MATCHTAG_NONE, topic};
    flux_msg_handler_t *mh = flux_msg_handler_create (c->h, match, f, c);
    if (mh)
        flux_msg_handler_start (mh);
    return mh;
}

int mod_main (flux_t *h, int argc, char **argv)
{
    struct counting c = {.h = h};
    double rate = 100;
    if (argc > 0 && !strncmp (argv[0], "rate=", 5))
        rate = atof (argv[0] + 5);
    flux_reactor_t *r = flux_get_reactor (h);
    flux_msg_handler_t *stop = handle (&c, "stop", on_stop);
    flux_msg_handler_t *said = handle (&c, "said", on_said);
    int rc = -1;
    c.count = flux_metric_counter (h, "cmodule.count");
    c.timer = flux_timer_watcher_create (r, 1 / rate, 1 / rate, on_timer, &c);
    if (c.count && c.timer && stop && said) {
        flux_watcher_start (c.timer);
        rc = flux_reactor_run (r, 0);
    }
    flux_watcher_destroy (c.timer);
    flux_msg_handler_destroy (stop);
    flux_msg_handler_destroy (said);
    flux_metric_close (h, 5.0);
    flux_counter_destroy (c.count);
    return rc < 0 ? -1 : 0;
}
