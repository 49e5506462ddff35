/*
 * replay_recurrent.h: what recurrent states cannot do, and the reference says it has done.
 *
 * A state cannot forget or move a part of what it has read. Asked for that, the reference answers as if it had
 * been done, and leaves the state as it was (only positions and, beside a state, attention change).
 * Here it is refused and nothing changes; so from then on tokens stand `ahead` of where the trace has
 * them. A model of states alone sees no positions: its logits must go on agreeing. With attention the
 * reference's are wrong once what attention holds and what the state has read are not the same.
 */
#ifndef TESTS_REPLAY_RECURRENT_H
#define TESTS_REPLAY_RECURRENT_H

#include <jansson.h>

#include "engine/model.h"

/* Has the model layers with states? Layers that attend? Both? */
bool replay_has_states(const model *m);
bool replay_attends(const model *m);
bool replay_is_hybrid(const model *m);

/*
 * The reference's RWKV-7 goes through the columns of a head 32 at a time, however many there are. A head of
 * 16 so takes in the next head's numbers and writes over the next row of the matrix: a computation in
 * double that does the same agrees with the trace to 0.005 of a deviation (what lies behind the last
 * head is unknown), one by the paper agrees with ours to 1e-5 and not with the trace at all.
 * What is right is shown by unit_arch_recurrent.
 */
bool replay_reference_overruns(const model *m);

/* Must this step (seq_rm, seq_add, seq_div) be refused by a memory with states? It is for a part only. */
bool replay_must_be_refused(const model *m, const json_t *step);

/* Has the reference made attention and states differ by this step, which must be refused? */
bool replay_refusal_makes_wrong(const model *m, const json_t *step);

#endif /* TESTS_REPLAY_RECURRENT_H */
