/* A process that uses the stand-in as a Flux command or a Python module uses libflux: linked (-DLINKED), or
 * loaded late, into a scope of its own. It turns its reactor 20 times, forks a child that turns a reactor
 * and exits, says READY, and waits for the end of its input. Without an argument it uses no reactor.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct flux_reactor;

#ifdef LINKED
struct flux_reactor *flux_reactor_create (int flags);
int flux_reactor_run (struct flux_reactor *r, int flags);
#endif

int main (int argc, char **argv)
{
    char byte;

    if (argc > 1) {
        struct flux_reactor *(*create) (int);
        int (*run) (struct flux_reactor *, int);
#ifdef LINKED
        create = flux_reactor_create;
        run = flux_reactor_run;
#else
        void *handle = dlopen (argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            return 1;
        /* What an extension module linked to libflux would be bound to: the global scope comes first. */
        create = (struct flux_reactor * (*)(int)) dlsym (RTLD_DEFAULT, "flux_reactor_create");
        if (!create)
            create = (struct flux_reactor * (*)(int)) dlsym (handle, "flux_reactor_create");
        run = (int (*) (struct flux_reactor *, int)) dlsym (handle, "flux_reactor_run");
#endif
        struct flux_reactor *r = create (0);
        for (int i = 0; i < 20; i++) {
            if (run (r, 2) < 0)
                return 2;
        }
        pid_t child = fork ();
        if (child == 0) {
            for (int i = 0; i < 20; i++)
                run (r, 2);
            _exit (0);
        }
        waitpid (child, NULL, 0);
    }
    puts ("READY");
    fflush (stdout);
    return read (0, &byte, 1) < 0;
}
