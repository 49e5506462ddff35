/*
 * replay_state.c: the states of replay_state.h.
 *
 * The buffer has the size that cellar_measure_session said and not a byte more; a writer that wants
 * more is refused, one that writes less is noticed at the end.
 */
#include "replay_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool append(void *context, const void *bytes, size_t size)
{
    replay_state *state = context;
    if (size > state->capacity - state->size) return false;
    memcpy(state->bytes + state->size, bytes, size);
    state->size += size;
    return true;
}

void replay_state_save(replay_state *state, const cellar_memory *memory, cellar_seq seq,
                       replay_outcome *outcome)
{
    cellar_save_options options = cellar_save_options_init();
    if (seq >= 0) {
        options.sequences = &seq;
        options.n_sequences = 1;
    }
    uint64_t size = 0;
    cellar_error error;
    cellar_status status = cellar_measure_session(memory, &options, &size, &error);
    replay_state_free(state);
    state->bytes = status == CELLAR_OK ? malloc((size_t)size) : NULL;
    if (status == CELLAR_OK && state->bytes == NULL) {
        replay_fail(outcome, "no memory for a state of %" PRIu64 " bytes", size);
        return;
    }
    state->capacity = (size_t)size;
    state->seq = seq;
    const cellar_writer writer = {.write = append, .context = state};
    if (status == CELLAR_OK) {
        status = cellar_write_session(memory, &options, &writer, &error);
    }
    if (status != CELLAR_OK) {
        replay_fail(outcome, "%s: %s", cellar_status_text(status), error.message);
    } else if (state->size != size) {
        replay_fail(outcome, "a state of %" PRIu64 " bytes was measured, %zu were written", size,
                    state->size);
    }
}

void replay_state_load(const replay_state *state, cellar_memory *memory, cellar_seq as,
                       replay_outcome *outcome)
{
    if (state->bytes == NULL) {
        replay_fail(outcome, "the trace loads a state and has saved none");
        return;
    }
    cellar_load_options options = cellar_load_options_init();
    if (as >= 0) {
        options.sequences = &state->seq;
        options.as = &as;
        options.n_sequences = 1;
    }
    cellar_session *session = NULL;
    cellar_error error;
    cellar_status status = cellar_open_session_bytes(state->bytes, state->size, NULL, &session,
                                                     &error);
    if (status == CELLAR_OK && as < 0) {
        status = cellar_clear(memory, &error);
    }
    if (status == CELLAR_OK) {
        status = cellar_load_session(memory, session, &options, &error);
    }
    cellar_close_session(session);
    if (status != CELLAR_OK) {
        replay_fail(outcome, "%s: %s", cellar_status_text(status), error.message);
    }
}

void replay_state_free(replay_state *state)
{
    free(state->bytes);
    *state = (replay_state){.bytes = NULL};
}
