/*
 * session_questions.c: what a session is, asked of it.
 *
 * Everything but rows was checked and is in memory since it was opened, so questions only look things up;
 * cellar_check_session is the one that reads.
 */
#include "session.h"

#include "error.h"

static cellar_status check_asked(const cellar_session *session, const void *out,
                                 cellar_error *error)
{
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    return CELLAR_OK;
}

cellar_status cellar_check_session(const cellar_session *session, cellar_error *error)
{
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    cl_alloc alloc =
        session->alloc; /* what is read is given back at once: nothing is left to count */
    for (uint32_t i = 0; i < session->n_entries; i++) {
        cl_section section;
        CL_TRY(cl_session_get_section(session, &alloc, &session->entries[i], &section, error));
        cl_session_put_section(&alloc, &section);
    }
    return CELLAR_OK;
}

cellar_status cellar_describe_session(const cellar_session *session, cellar_session_info *out,
                                      cellar_error *error)
{
    CL_TRY(check_asked(session, out, error));
    *out = (cellar_session_info){.bytes = session->commit.length,
                                 .live_bytes = CL_SESSION_HEADER + session->commit.index_length,
                                 .generation = session->commit.generation,
                                 .n_facts = session->model.n_facts,
                                 .n_notes = session->n_notes,
                                 .n_sequences = session->n_sequences,
                                 .n_checkpoints = session->n_checkpoints,
                                 .n_groups = session->model.n_groups,
                                 .n_layers = session->model.n_layers,
                                 .is_journal = session->is_journal};
    for (uint32_t i = 0; i < session->n_entries; i++) /* up to where the next one may begin */
        out->live_bytes += (session->entries[i].length + CL_SESSION_ALIGN - 1) &
                           ~(uint64_t)(CL_SESSION_ALIGN - 1);
    for (uint32_t g = 0; g < session->model.n_groups; g++)
        out->n_cells += session->model.groups[g].n_cells;
    return CELLAR_OK;
}

static cellar_status get_note(const cellar_note *notes, uint32_t n, uint32_t i, const char *what,
                              cellar_note *out, cellar_error *error)
{
    if (i >= n) CL_FAIL(error, CELLAR_INVALID, i, "there is no %s %u, there are %u", what, i, n);
    *out = notes[i];
    return CELLAR_OK;
}

cellar_status cellar_get_session_fact(const cellar_session *session, uint32_t i, cellar_note *out,
                                      cellar_error *error)
{
    CL_TRY(check_asked(session, out, error));
    return get_note(session->model.facts, session->model.n_facts, i, "fact", out, error);
}

cellar_status cellar_get_session_note(const cellar_session *session, uint32_t i, cellar_note *out,
                                      cellar_error *error)
{
    CL_TRY(check_asked(session, out, error));
    return get_note(session->notes, session->n_notes, i, "note", out, error);
}

cellar_status cellar_get_session_sequence(const cellar_session *session, uint32_t i,
                                          cellar_session_sequence *out, cellar_error *error)
{
    CL_TRY(check_asked(session, out, error));
    if (i >= session->n_sequences)
        CL_FAIL(error, CELLAR_INVALID, i, "there is no sequence %u, there are %u", i,
                session->n_sequences);
    const cl_saved_sequence *sequence = &session->sequences[i];
    *out = (cellar_session_sequence){.seq = sequence->seq,
                                     .pos_min = -1,
                                     .pos_max = -1,
                                     .n_checkpoints = sequence->n_marks,
                                     .n_tokens = sequence->n_tokens,
                                     .tokens = sequence->tokens};
    for (uint32_t g = 0; g < session->model.n_groups; g++) {
        const cl_saved_list *list = &sequence->lists[g];
        out->n_runs += list->n_runs;
        for (uint32_t r = 0; r < list->n_runs; r++)
            out->n_cells += list->runs[r].len;
        if (list->n_runs == 0) continue;
        cellar_pos first = list->runs[0].pos, last = cl_run_last(&list->runs[list->n_runs - 1]);
        if (out->pos_min < 0 || first < out->pos_min) out->pos_min = first;
        if (last > out->pos_max) out->pos_max = last;
    }
    return CELLAR_OK;
}

const cl_saved_sequence *cl_session_find(const cellar_session *session, cellar_seq seq)
{
    uint32_t low = 0, high = session->n_sequences;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (session->sequences[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_there = low < session->n_sequences && session->sequences[low].seq == seq;
    return is_there ? &session->sequences[low] : NULL;
}

/* ---- a memory for it ------------------------------------------------------------------------- */

/* Bytes that all checkpoints hold, each cell counted once for each that holds it. */
static uint64_t checkpoint_bytes(const cellar_session *session)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < session->n_checkpoints; c++)
        for (uint32_t g = 0; g < session->model.n_groups; g++) {
            const cl_saved_list *list = &session->checkpoints[c].lists[g];
            for (uint32_t r = 0; r < list->n_runs; r++)
                bytes += list->runs[r].len * session->model.groups[g].cell_bytes;
        }
    return bytes;
}

/* States that one sequence keeps behind its last one. */
static uint64_t rollback_bytes(const cellar_session *session)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < session->model.n_groups; g++) {
        if (session->model.groups[g].kind != CELLAR_LAYER_RECURRENT) continue;
        for (uint32_t i = 0; i < session->n_sequences; i++) {
            const cl_saved_list *list = &session->sequences[i].lists[g];
            if (list->n_runs == 0) continue;
            int64_t span = cl_run_last(&list->runs[list->n_runs - 1]) - list->runs[0].pos;
            uint64_t bytes = (uint64_t)span * (session->model.groups[g].cell_bytes + 64);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

/*
 * Windows are given full size: what a session holds behind them should not be lost on the way. Cells:
 * those of the largest group, twice, so that a fork or a step has room.
 */
cellar_status cellar_get_session_config(const cellar_session *session, cellar_config *out,
                                        cellar_error *error)
{
    CL_TRY(check_asked(session, out, error));
    uint64_t most = 32;
    for (uint32_t g = 0; g < session->model.n_groups; g++)
        if (session->model.groups[g].n_cells > most) most = session->model.groups[g].n_cells;
    *out = cellar_config_init();
    out->n_layers = session->model.n_layers;
    out->layers = session->model.layers;
    out->n_cells = (uint32_t)(most > (1u << 29) ? 1u << 30 : 2 * most);
    out->n_sequences = session->n_sequences > 0 ? session->n_sequences : 1;
    if (out->n_sequences > 1u << 20) out->n_sequences = 1u << 20;
    out->is_window_full = true;
    out->checkpoint_bytes = 2 * checkpoint_bytes(session);
    out->rollback_bytes = rollback_bytes(session);
    return CELLAR_OK;
}
