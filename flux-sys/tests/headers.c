/* Every declaration of include/libflux.h held against the installed <flux/core.h>.
 *
 * Compiled, never run: a prototype that differs is a conflicting redeclaration,
 * a constant or a layout that differs fails its assertion.
 */
#define LIBFLUX_CHECK 1
#define LIBFLUX_OWN(x) ours_##x
#include <flux/core.h>
#include "libflux.h"

#define SAME_VALUE(name) _Static_assert ((int)ours_##name == (int)name, #name)
#define SAME_FIELD(type, field) \
    _Static_assert (offsetof (struct ours_##type, field) == offsetof (struct type, field), #type "." #field)

SAME_VALUE (FLUX_MSGTYPE_REQUEST);
SAME_VALUE (FLUX_MSGTYPE_RESPONSE);
SAME_VALUE (FLUX_MSGTYPE_EVENT);
SAME_VALUE (FLUX_MSGTYPE_CONTROL);
SAME_VALUE (FLUX_RPC_NORESPONSE);
SAME_VALUE (FLUX_RPC_STREAMING);
SAME_VALUE (FLUX_POLLIN);
SAME_VALUE (FLUX_POLLOUT);
SAME_VALUE (FLUX_POLLERR);
SAME_VALUE (FLUX_REACTOR_NOWAIT);
SAME_VALUE (FLUX_REACTOR_ONCE);
SAME_VALUE (FLUX_ROLE_NONE);
SAME_VALUE (FLUX_ROLE_OWNER);
SAME_VALUE (FLUX_ROLE_USER);
SAME_VALUE (FLUX_ROLE_LOCAL);
SAME_VALUE (FLUX_MATCHTAG_NONE);
_Static_assert (FLUX_NODEID_ANY == 0xFFFFFFFFu, "FLUX_NODEID_ANY");
_Static_assert (FLUX_NODEID_UPSTREAM == 0xFFFFFFFEu, "FLUX_NODEID_UPSTREAM");
_Static_assert (FLUX_ROLE_ALL == 0xFFFFFFFFu, "FLUX_ROLE_ALL");

_Static_assert (sizeof (struct ours_flux_match) == sizeof (struct flux_match), "struct flux_match");
SAME_FIELD (flux_match, typemask);
SAME_FIELD (flux_match, matchtag);
SAME_FIELD (flux_match, topic_glob);
_Static_assert (sizeof (struct ours_flux_error_text) == sizeof (flux_error_t), "flux_error_t");
