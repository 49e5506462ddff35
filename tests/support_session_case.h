/*
 * support_session_case.h: a small session of each kind of memory, and a memory that it comes to.
 *
 * The session was saved by one memory and is loaded into another one of the same layers but other size,
 * which holds sequences of its own. `case_try` opens and loads bytes there with little memory left and
 * asserts (cmocka) that a refusal changed nothing and that whatever was loaded is sound.
 */
#ifndef SUPPORT_SESSION_CASE_H
#define SUPPORT_SESSION_CASE_H

#include "model/play.h"
#include "support_session.h"

typedef enum case_shape {
    CASE_PLAIN,   /* full attention */
    CASE_WINDOW,  /* full attention and a window with sinks, checkpoints */
    CASE_HYBRID,  /* full attention and states, checkpoints */
    CASE_PICTURE, /* full attention with 2-D positions */
    CASE_SHAPES
} case_shape;

extern const char *const case_names[CASE_SHAPES];

/* Sequences of the session, and of the memory that it comes to. */
enum { CASE_LONG = 3, CASE_FORK = 5, CASE_OWN_A = 0, CASE_OWN_B = 1 };
enum { CASE_TOKENS = 20, CASE_SHARED = 12, CASE_FORK_MORE = 4 };

typedef struct session_case {
    case_shape shape;
    uint32_t n_groups;
    drive saver, d; /* d: where it is loaded */
    limited memory; /* of d and of open sessions */
    parcel file;
    drive_snapshot before;
    cellar_error error; /* of the last try */
    uint32_t n_refused, n_loaded;
} session_case;

/* The layers of a shape, into d. */
void case_layers(drive *d, case_shape shape);

/* The options that the session was saved with, and with which it loads. */
cellar_save_options case_save_options(void);
cellar_load_options case_load_options(void);

/* Make everything. Loading gets the names 103 and 105: those of the memory stay as they are. */
void case_open(session_case *c, case_shape shape);
void case_close(session_case *c);

/*
 * Open these bytes and load them. Whatever comes of it is checked; what was loaded is removed again.
 * The status of the call that failed, or CELLAR_OK.
 */
cellar_status case_try(session_case *c, const unsigned char *bytes, size_t size);

/* Has nothing changed since the case was made? Fails the test if something has; `what` for the message. */
void case_expect_unchanged(session_case *c, const char *what);

#endif /* SUPPORT_SESSION_CASE_H */
