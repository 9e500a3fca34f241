/* A stand-in for libflux: what the probe hooks, and nothing else. A reactor is an epoll descriptor. */
#include <poll.h>
#include <sys/epoll.h>

#define BACKEND_EVENTS 64

/* Waits up to `flags` ms, as libev's backend waits. */
int flux_reactor_run (void *reactor, int flags)
{
    struct epoll_event events[BACKEND_EVENTS];
    return epoll_wait (*(int *)reactor, events, BACKEND_EVENTS, flags);
}

/* What flux_pollevents does: no turn. */
int standin_drain (void *reactor)
{
    struct epoll_event event;
    return epoll_wait (*(int *)reactor, &event, 1, 0);
}

/* A synchronous RPC: a reactor inside the callers', run through the library's own GOT. */
int standin_sync (void *reactor, int ms)
{
    return flux_reactor_run (reactor, ms);
}

/* A blocking receive. */
int standin_receive (int ms)
{
    struct pollfd none = { .fd = -1 };
    return poll (&none, 1, ms);
}
