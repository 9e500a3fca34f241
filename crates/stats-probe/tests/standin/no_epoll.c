/* A library that waits by nothing of its own, as libflux would on a libev that is a library of its own. */
int flux_reactor_run (void *reactor, int flags)
{
    return flags;
}
