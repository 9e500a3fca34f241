/* A stand-in for the slice of libflux that the probe depends on: a reactor on epoll in a shared object
 * that imports epoll_wait and poll, a synchronous call that runs a second reactor by the public
 * flux_reactor_run, and the drain of a handle's descriptor that is no turn. Not Flux's code.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

typedef void (*turn_f) (void *arg);

struct flux_reactor {
    int epfd;
    int timer;
    int stopped;
    turn_f turn;
    void *arg;
};

struct flux_reactor *standin_create (long period_ns, turn_f turn, void *arg)
{
    struct flux_reactor *r = calloc (1, sizeof (*r));
    struct itimerspec when = { { 0, period_ns }, { 0, period_ns } };
    struct epoll_event ev = { .events = EPOLLIN };

    r->epfd = epoll_create1 (EPOLL_CLOEXEC);
    r->timer = timerfd_create (CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    r->turn = turn;
    r->arg = arg;
    when.it_value.tv_sec = when.it_interval.tv_sec = period_ns / 1000000000;
    when.it_value.tv_nsec = when.it_interval.tv_nsec = period_ns % 1000000000;
    if (period_ns > 0)
        timerfd_settime (r->timer, 0, &when, NULL);
    epoll_ctl (r->epfd, EPOLL_CTL_ADD, r->timer, &ev);
    return r;
}

/* libev may wait by any of these. */
static int wait_for_events (int epfd, struct epoll_event *events, int max, int timeout_ms)
{
#if defined (USE_EPOLL_PWAIT2)
    struct timespec timeout = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

    return epoll_pwait2 (epfd, events, max, timeout_ms < 0 ? NULL : &timeout, NULL);
#elif defined (USE_EPOLL_PWAIT)
    return epoll_pwait (epfd, events, max, timeout_ms, NULL);
#else
    return epoll_wait (epfd, events, max, timeout_ms);
#endif
}

/* libflux's prototype: a reactor with a timer of 1 ms. */
struct flux_reactor *flux_reactor_create (int flags)
{
    return standin_create (1000000 + flags, NULL, NULL);
}

void standin_destroy (struct flux_reactor *r)
{
    close (r->epfd);
    close (r->timer);
    free (r);
}

void flux_reactor_stop (struct flux_reactor *r)
{
    __atomic_store_n (&r->stopped, 1, __ATOMIC_RELEASE);
}

/* flags: 1 no wait, 2 one turn. */
int flux_reactor_run (struct flux_reactor *r, int flags)
{
    struct epoll_event events[64];

    __atomic_store_n (&r->stopped, 0, __ATOMIC_RELEASE);
    do {
        int n = wait_for_events (r->epfd, events, 64, flags & 1 ? 0 : -1);
        uint64_t expired;
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0 && read (r->timer, &expired, sizeof (expired)) < 0 && errno != EAGAIN)
            return -1;
        if (r->turn)
            r->turn (r->arg);
    } while (!(flags & 3) && !__atomic_load_n (&r->stopped, __ATOMIC_ACQUIRE));
    return 0;
}

/* A synchronous RPC that is answered after so long. */
int standin_rpc (long ns)
{
    struct flux_reactor *r = standin_create (ns, NULL, NULL);
    int rc = flux_reactor_run (r, 2);

    standin_destroy (r);
    return rc;
}

/* A blocking receive. */
int standin_recv (int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll (&p, 1, -1);
}

/* What flux_pollevents does at every turn. */
int standin_pollevents (struct flux_reactor *r)
{
    struct epoll_event event;

    return wait_for_events (r->epfd, &event, 1, 0);
}

/* errno as a failing epoll_wait of a turn leaves it. */
int standin_errno (int preset)
{
    struct epoll_event events[64];

    errno = preset;
    if (preset == 0)
        wait_for_events (-1, events, 64, 0);
    else {
        int epfd = epoll_create1 (EPOLL_CLOEXEC);
        wait_for_events (epfd, events, 64, 0);
        int saved = errno;
        close (epfd);
        errno = saved;
    }
    return errno;
}

/* Starts a thread in a reactor that never wakes, with a cleanup handler, cancels it while it sleeps, and
 * returns 1 if it was cancelled in order.
 */
static int cleaned;

static void cleanup (void *arg)
{
    __atomic_store_n (&cleaned, 1, __ATOMIC_RELEASE);
}

static void *sleeper (void *arg)
{
    struct flux_reactor *r = standin_create (0, NULL, NULL);

    pthread_cleanup_push (cleanup, NULL);
    if (arg)
        standin_rpc (3600L * 1000000000L);
    else
        flux_reactor_run (r, 0);
    pthread_cleanup_pop (0);
    return NULL;
}

int standin_cancel (int nested)
{
    pthread_t thread;
    void *result;
    struct timespec moment = { 0, 50000000 };

    cleaned = 0;
    if (pthread_create (&thread, NULL, sleeper, nested ? &cleaned : NULL) != 0)
        return 0;
    nanosleep (&moment, NULL);
    pthread_cancel (thread);
    pthread_join (thread, &result);
    return result == PTHREAD_CANCELED && __atomic_load_n (&cleaned, __ATOMIC_ACQUIRE);
}
