/* libflux.h: the slice of libflux's C interface that flux-stats binds.
 *
 * These declarations are our own. `cargo xtask bindings` turns them into
 * flux-sys/src/bindings.rs; nothing here is ever linked, every symbol is looked
 * up at run time (flux-sys/src/load.rs). Where Flux's own headers are installed,
 * flux-sys/tests/headers.c compiles this file after <flux/core.h>: each prototype
 * below is then a redeclaration, so one wrong type is a compile error, and each
 * constant and struct of ours is held against Flux's by a static assertion.
 *
 * LIBFLUX_OWN(x) spells the name of a struct or constant that we define. In the
 * check it gets a prefix, so that ours and Flux's can be compared side by side.
 *
 * What the functions do is described in Flux's manual pages, section 3. What is
 * noted here is only what a binding must know and a prototype does not say.
 */
#ifndef FLUX_STATS_LIBFLUX_H
#define FLUX_STATS_LIBFLUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef LIBFLUX_OWN
#define LIBFLUX_OWN(x) x
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

typedef struct flux_handle flux_t;
typedef struct flux_reactor flux_reactor_t;
typedef struct flux_watcher flux_watcher_t;
typedef struct flux_future flux_future_t;
typedef struct flux_msg flux_msg_t;
typedef struct flux_msg_handler flux_msg_handler_t;
struct flux_msglist;

/* A message of at most 159 characters and its NUL. */
struct LIBFLUX_OWN (flux_error_text) {
    char text[160];
};

#ifndef LIBFLUX_CHECK /* a typedef of an unnamed struct in Flux: compared by size */
typedef struct flux_error_text flux_error_t;
#endif

/* Which messages a handler takes: passed by value. */
struct LIBFLUX_OWN (flux_match) {
    int typemask;
    uint32_t matchtag;
    const char *topic_glob;
};

typedef void (*flux_free_f) (void *arg);
typedef void (*flux_watcher_f) (flux_reactor_t *r, flux_watcher_t *w, int revents, void *arg);
typedef void (*flux_continuation_f) (flux_future_t *f, void *arg);
typedef void (*flux_msg_handler_f) (flux_t *h, flux_msg_handler_t *mh, const flux_msg_t *msg, void *arg);

/* ---- constants ---- */

enum {
    LIBFLUX_OWN (FLUX_MSGTYPE_REQUEST) = 1,
    LIBFLUX_OWN (FLUX_MSGTYPE_RESPONSE) = 2,
    LIBFLUX_OWN (FLUX_MSGTYPE_EVENT) = 4,
    LIBFLUX_OWN (FLUX_MSGTYPE_CONTROL) = 8,
};

enum {
    LIBFLUX_OWN (FLUX_RPC_NORESPONSE) = 1,
    LIBFLUX_OWN (FLUX_RPC_STREAMING) = 2,
};

enum {
    LIBFLUX_OWN (FLUX_POLLIN) = 1,
    LIBFLUX_OWN (FLUX_POLLOUT) = 2,
    LIBFLUX_OWN (FLUX_POLLERR) = 4,
};

enum {
    LIBFLUX_OWN (FLUX_REACTOR_NOWAIT) = 1,
    LIBFLUX_OWN (FLUX_REACTOR_ONCE) = 2,
};

enum {
    LIBFLUX_OWN (FLUX_ROLE_NONE) = 0,
    LIBFLUX_OWN (FLUX_ROLE_OWNER) = 1,
    LIBFLUX_OWN (FLUX_ROLE_USER) = 2,
    LIBFLUX_OWN (FLUX_ROLE_LOCAL) = 4,
};

enum {
    LIBFLUX_OWN (FLUX_MATCHTAG_NONE) = 0,
};

/* Unsigned, so not enumerators (an enumerator is an int to bindgen). */
#ifndef LIBFLUX_CHECK
#define FLUX_NODEID_ANY 0xFFFFFFFFu
#define FLUX_NODEID_UPSTREAM 0xFFFFFFFEu
#define FLUX_ROLE_ALL 0xFFFFFFFFu
#endif

/* ---- version ---- */

const char *flux_core_version_string (void);
int flux_core_version (int *major, int *minor, int *patch);

/* ---- handle ---- */

flux_t *flux_open_ex (const char *uri, int flags, flux_error_t *error);
void flux_close (flux_t *h);
flux_reactor_t *flux_get_reactor (flux_t *h);
int flux_set_reactor (flux_t *h, flux_reactor_t *r);
/* The item is freed by `destroy` when the handle is destroyed, or when another
 * of the same name replaces it. Name NULL: anonymous, never replaced. */
void *flux_aux_get (flux_t *h, const char *name);
int flux_aux_set (flux_t *h, const char *name, void *aux, flux_free_f destroy);
int flux_opt_set (flux_t *h, const char *option, const void *val, size_t len);

/* ---- attributes ---- */

/* The string belongs to the handle and lives until the attribute changes. */
const char *flux_attr_get (flux_t *h, const char *name);
int flux_get_rank (flux_t *h, uint32_t *rank);
int flux_get_size (flux_t *h, uint32_t *size);

/* ---- log (syslog levels; the format is always a fixed "%s") ---- */

int flux_log (flux_t *h, int level, const char *fmt, ...);
const char *flux_strerror (int errnum);

/* ---- reactor and watchers (times in seconds) ---- */

flux_reactor_t *flux_reactor_create (int flags);
void flux_reactor_destroy (flux_reactor_t *r);
int flux_reactor_run (flux_reactor_t *r, int flags);
void flux_reactor_stop (flux_reactor_t *r);
void flux_reactor_stop_error (flux_reactor_t *r);
double flux_reactor_now (flux_reactor_t *r);

void flux_watcher_start (flux_watcher_t *w);
void flux_watcher_stop (flux_watcher_t *w);
void flux_watcher_ref (flux_watcher_t *w);
void flux_watcher_unref (flux_watcher_t *w);
void flux_watcher_destroy (flux_watcher_t *w);
/* -2 (last) to 2 (first); only check watchers honour it. */
void flux_watcher_set_priority (flux_watcher_t *w, int priority);
flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r,
                                           double after,
                                           double repeat,
                                           flux_watcher_f cb,
                                           void *arg);
void flux_timer_watcher_reset (flux_watcher_t *w, double after, double repeat);
flux_watcher_t *flux_fd_watcher_create (flux_reactor_t *r, int fd, int events, flux_watcher_f cb, void *arg);
flux_watcher_t *flux_prepare_watcher_create (flux_reactor_t *r, flux_watcher_f cb, void *arg);
flux_watcher_t *flux_check_watcher_create (flux_reactor_t *r, flux_watcher_f cb, void *arg);
flux_watcher_t *flux_idle_watcher_create (flux_reactor_t *r, flux_watcher_f cb, void *arg);

/* ---- futures and RPCs ---- */

/* timeout < 0: none. `cb` is called when the future is ready or has failed. */
int flux_future_then (flux_future_t *f, double timeout, flux_continuation_f cb, void *arg);
int flux_future_wait_for (flux_future_t *f, double timeout);
bool flux_future_is_ready (flux_future_t *f);
/* Back to waiting: for the next response of a streaming RPC. */
void flux_future_reset (flux_future_t *f);
void flux_future_destroy (flux_future_t *f);
int flux_future_get (flux_future_t *f, const void **result);
bool flux_future_has_error (flux_future_t *f);
const char *flux_future_error_string (flux_future_t *f);

flux_future_t *flux_rpc (flux_t *h, const char *topic, const char *s, uint32_t nodeid, int flags);
flux_future_t *flux_rpc_raw (flux_t *h, const char *topic, const void *data, size_t len, uint32_t nodeid, int flags);
/* What they point to belongs to the future. */
int flux_rpc_get (flux_future_t *f, const char **s);
int flux_rpc_get_raw (flux_future_t *f, const void **data, size_t *len);
uint32_t flux_rpc_get_matchtag (flux_future_t *f);

/* ---- messages ---- */

const flux_msg_t *flux_msg_incref (const flux_msg_t *msg);
void flux_msg_decref (const flux_msg_t *msg);
int flux_msg_get_topic (const flux_msg_t *msg, const char **topic);
int flux_msg_get_rolemask (const flux_msg_t *msg, uint32_t *rolemask);
int flux_msg_get_userid (const flux_msg_t *msg, uint32_t *userid);
bool flux_msg_is_streaming (const flux_msg_t *msg);
bool flux_msg_is_noresponse (const flux_msg_t *msg);
/* The sender's identity (a UUID), or NULL. */
const char *flux_msg_route_first (const flux_msg_t *msg);

int flux_request_decode (const flux_msg_t *msg, const char **topic, const char **s);
int flux_request_decode_raw (const flux_msg_t *msg, const char **topic, const void **data, size_t *len);
int flux_respond (flux_t *h, const flux_msg_t *request, const char *s);
/* The length is an int, not a size_t. */
int flux_respond_raw (flux_t *h, const flux_msg_t *request, const void *data, int len);
int flux_respond_error (flux_t *h, const flux_msg_t *request, int errnum, const char *errstr);

/* ---- message handlers ---- */

/* The topic is copied. A handler is created stopped, for the owner only. */
flux_msg_handler_t *flux_msg_handler_create (flux_t *h,
                                             const struct flux_match match,
                                             flux_msg_handler_f cb,
                                             void *arg);
void flux_msg_handler_destroy (flux_msg_handler_t *mh);
void flux_msg_handler_start (flux_msg_handler_t *mh);
void flux_msg_handler_stop (flux_msg_handler_t *mh);
void flux_msg_handler_allow_rolemask (flux_msg_handler_t *mh, uint32_t rolemask);

/* ---- events (a subscription matches by prefix) ---- */

int flux_event_subscribe (flux_t *h, const char *topic);
int flux_event_unsubscribe (flux_t *h, const char *topic);
int flux_event_decode (const flux_msg_t *msg, const char **topic, const char **s);
flux_future_t *flux_event_publish (flux_t *h, const char *topic, int flags, const char *s);
/* The sequence number that the published event got. */
int flux_event_publish_get_seq (flux_future_t *f, int *seq);
int flux_msg_get_seq (const flux_msg_t *msg, uint32_t *seq);

/* ---- streaming services: whose requests end ---- */

/* Whether msg2, a NAME.disconnect, comes from the client that sent msg1. */
bool flux_disconnect_match (const flux_msg_t *msg1, const flux_msg_t *msg2);
/* Whether msg2, a NAME.cancel with {"matchtag":i}, is about msg1. */
bool flux_cancel_match (const flux_msg_t *msg1, const flux_msg_t *msg2);

/* ---- modules and services ---- */

int flux_module_set_running (flux_t *h);
flux_future_t *flux_service_register (flux_t *h, const char *name);
flux_future_t *flux_service_unregister (flux_t *h, const char *name);

#ifdef __cplusplus
}
#endif

#endif /* FLUX_STATS_LIBFLUX_H */
