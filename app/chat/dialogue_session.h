/*
 * dialogue_session.h: all dialogues in one session file, and back.
 *
 * The library writes what the sequences hold; what dialogues share is in the file once. Beside it go
 * notes: "chat" says which dialogues there are, "chat 3" what the dialogue of sequence 3 is: its
 * messages, and which text its tokens stand for. The tokens themselves are the sequence's log.
 *
 * Loading believes nothing: a note that contradicts itself, the log or the model is refused, and
 * everything is as it was. What is loaded takes the place of all dialogues that were there, at the
 * end, so both need room until then.
 */
#ifndef APP_DIALOGUE_SESSION_H
#define APP_DIALOGUE_SESSION_H

#include "chat/dialogue.h"

/* What is kept beside the dialogues. */
typedef struct dialogue_state {
    const char *current; /* name of a dialogue */
    uint64_t seed, generator[4];
} dialogue_state;

/* As cellar_save_session. CELLAR_INVALID also: nothing was read yet. */
cellar_status dialogue_session_save(const dialogues *all, const dialogue_state *state,
                                    const char *path, cellar_error *error);

/*
 * As cellar_open_session and cellar_load_session. state->current then belongs to the dialogue of
 * that name. CELLAR_UNSUPPORTED: a session of another kind; CELLAR_CORRUPT.
 */
cellar_status dialogue_session_load(dialogues *all, dialogue_state *state, const char *path,
                                    cellar_error *error);

#endif /* APP_DIALOGUE_SESSION_H */
