/* flux-metrics.h: metrics of your own, from a Flux handle to the whole instance.
 *
 * What is counted stays in the process. Once a period one message brings it to
 * the module stats-agg of the handle's broker, which merges it up the tree with
 * everybody else's; `flux module stats stats-agg` on rank 0 shows it. While the
 * module is not loaded it is kept, as large as the number of series.
 *
 *     flux_metric_count (h, "app.requests", 1);
 *     flux_metric_timing (h, "app.fetch_s", 0.012);
 *     flux_metric_gauge (h, "app.depth;queue=batch", 17);
 *     ...
 *     flux_metric_close (h, 2.0);
 *     flux_close (h);
 *
 * Link with -lflux-metrics (pkg-config flux-metrics). The library uses the
 * libflux that the process has, or loads libflux-core.so.2 (flux-core 0.70 or
 * newer).
 *
 * NAMES are dotted words of A-Z a-z 0-9 _ -, at most 200 bytes. Those that begin
 * with modules. broker. stats-agg. jobs. resources. overlay. guests. are the
 * service's own. Tags may follow: "name;key=value;key=value", at most 16, each key and
 * value 1 to 200 bytes without unseen characters or semicolons. One name may
 * stand for series of several types; they are different series.
 *
 * TIME is in seconds, everywhere.
 *
 * RESULTS. Functions that return int return 0, or -1 with errno set; those that
 * return a pointer return NULL with errno set. Nothing is counted then. The
 * values of errno that any of them may set:
 *
 *   EINVAL     the handle, a name or a member is NULL; a name, a tag or a member
 *              is malformed or too long; a number is not finite, or negative
 *              where that makes no sense
 *   EPERM      the name is the service's own
 *   ENOSPC     the handle has 10,000 series already
 *   ENOMEM     memory
 *   ELIBACC    the process has no usable libflux
 *   EBUSY      called from inside a push of the same handle
 *   EIO        an internal error, which is a bug
 *
 * THREADS. As with the handle itself: one thread at a time uses a handle, and
 * what belongs to it. Different handles have nothing in common. No function
 * blocks but flux_metric_flush and flux_metric_close, and, on a handle whose
 * reactor does not run, the first call after each period, which sends what there
 * is and waits at most 0.1 s for the answer.
 *
 * WHEN IT IS SENT. By a timer of the handle's reactor, which keeps no reactor
 * alive, and which is made only when the handle has a reactor; where none runs,
 * by the first call after the period (where calls come fast, by one of the next
 * 32). Nothing is sent when nothing changed. The period is the one of the
 * module, or flux_metric_period's.
 *
 * With FLUX_METRICS_DUMP (stderr or a file, "json:" before it for JSON) what a
 * handle counted is printed when it is closed, with no module loaded anywhere.
 */
#ifndef FLUX_METRICS_H
#define FLUX_METRICS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in <flux/core.h>, which need not be included. */
typedef struct flux_handle flux_t;

/* ---- by name: a name costs a look-up (some 20 ns) ---- */

/* Add n, which may be negative, to a counter. Totals are exact. */
int flux_metric_count (flux_t *h, const char *name, int64_t n);

/* Set a gauge of this rank, whoever else sets it. It is gone when it has not
 * been pushed for the module's `ttl`; a handle that lives pushes it in time. */
int flux_metric_gauge (flux_t *h, const char *name, double value);

/* Change a gauge of this rank by so much, whoever set it. */
int flux_metric_gauge_add (flux_t *h, const char *name, double by);

/* Record a duration, in seconds (kept to a nanosecond, 0 to 584 years): its
 * number, sum, extremes and distribution. By convention such names end in _s. */
int flux_metric_timing (flux_t *h, const char *name, double seconds);

/* Record a number that is no duration, such as bytes (kept to a millionth, 0 to
 * 9e12): likewise. */
int flux_metric_histogram (flux_t *h, const char *name, double sample);

/* Put a member (UTF-8, 1 to 200 bytes) into a set: how many different ones there
 * are is exact below 100, and within 1 % or so beyond. */
int flux_metric_set (flux_t *h, const char *name, const char *member);

/* ---- held: found once, then a nanosecond or a few ---- */

typedef struct flux_counter flux_counter_t;
typedef struct flux_gauge flux_gauge_t;
typedef struct flux_timing flux_timing_t;
typedef struct flux_histogram flux_histogram_t;

/* Find the counter of that name. It is the caller's, to be destroyed; when its
 * handle is closed before, what is added to it is lost, and no more. */
flux_counter_t *flux_metric_counter (flux_t *h, const char *name);

/* Add n. Nothing happens when c is NULL. */
void flux_counter_add (flux_counter_t *c, int64_t n);

/* NULL is ignored, errno is preserved; so with the others below. */
void flux_counter_destroy (flux_counter_t *c);

/* Likewise for a gauge. A value that is not finite is dropped, and counted in
 * stats-agg.dropped_by_handles. */
flux_gauge_t *flux_metric_gauge_handle (flux_t *h, const char *name);
void flux_gauge_set (flux_gauge_t *g, double value);
void flux_gauge_add (flux_gauge_t *g, double by);
void flux_gauge_destroy (flux_gauge_t *g);

/* Likewise for durations: in seconds (what is negative or not finite is dropped,
 * and counted as above), or in nanoseconds. */
flux_timing_t *flux_metric_timer (flux_t *h, const char *name);
void flux_timing_record (flux_timing_t *t, double seconds);
void flux_timing_record_ns (flux_timing_t *t, uint64_t nanoseconds);
void flux_timing_destroy (flux_timing_t *t);

/* Likewise for numbers that are no durations: others than those from 0 to 9e12 are
 * dropped, and counted as above. */
flux_histogram_t *flux_metric_histogram_handle (flux_t *h, const char *name);
void flux_histogram_record (flux_histogram_t *g, double sample);
void flux_histogram_destroy (flux_histogram_t *g);

/* ---- the handle ---- */

/* Push names that begin with prefix and a dot in messages of their own, every
 * `seconds` (0.1 to 3600; others are brought into that range), for a part of a
 * program that shares a handle with others. It holds for names that are used for
 * the first time afterwards. Setting the same prefix again changes nothing. */
int flux_metric_period (flux_t *h, const char *prefix, double seconds);

/* Time the handle's reactor, which is made if there is none: reactor.work_s, the
 * time from each wait to the next, and reactor.sleep_s, that of the waits, with
 * the tag name=PROGRAM. For programs: modules are timed by stats-agg itself. A
 * second call does nothing. */
int flux_metric_instrument (flux_t *h);

/* Send what there is, and wait at most `seconds` until it is acknowledged. errno
 * beside those above: ENOSYS (no stats-agg on this rank), ETIMEDOUT, or what the
 * sending failed with. What is not acknowledged is kept, and sent again. */
int flux_metric_flush (flux_t *h, double seconds);

/* Send what there is, wait at most `seconds` until it is acknowledged, and let go
 * of the handle: to be called before flux_close, and at the end of mod_main.
 * (Without it what was counted last is lost; and flux_close does not close a
 * handle that a push is under way of.) errno as flux_metric_flush; the handle is
 * let go in any case. A handle on which nothing was counted is fine. What is
 * counted afterwards begins anew. */
int flux_metric_close (flux_t *h, double seconds);

#ifdef __cplusplus
}
#endif

#endif /* FLUX_METRICS_H */
