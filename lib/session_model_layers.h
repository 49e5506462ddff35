/*
 * session_model_layers.h: how a memory's layers and groups are, as MODEL says it.
 *
 * For the two files that write and read it: both go through one description of a layer, in the terms of
 * cellar_layer, so what is written and what is compared cannot drift apart.
 */
#ifndef CL_SESSION_MODEL_LAYERS_H
#define CL_SESSION_MODEL_LAYERS_H

#include "session.h"

/* Flags of a layer in MODEL. */
enum { CL_MODEL_CAUSAL = 1, CL_MODEL_V_IN_K = 2, CL_MODEL_TURNED_K = 4, CL_MODEL_TURNED_V = 8 };

/*
 * A layer as the memory uses it: defaults filled in, fields without a meaning 0. Its factors are the
 * memory's; sizes of states are left out (state_sizes NULL).
 */
void cl_model_describe(const cellar_memory *memory, uint32_t i, cellar_layer *layer);

/* Kind, window and points of a group; no sections. */
void cl_model_describe_group(const cellar_memory *memory, uint32_t g, cl_saved_group *group);

/* The fixed part of a layer, a group. What was read is held against what would be written for it. */
void cl_model_put_layer(unsigned char to[CL_SESSION_LAYER], const cellar_layer *layer,
                        int32_t group);
void cl_model_put_group(unsigned char to[CL_SESSION_GROUP], const cl_saved_group *group);

#endif /* CL_SESSION_MODEL_LAYERS_H */
