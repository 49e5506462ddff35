/*
 * run_encoder.h: what `cellar run` does with the prompt of a model that has an encoder.
 *
 * The prompt is the text that the encoder reads; the answer begins with the token that the model file
 * names, and holds nothing of the prompt. A session would hold the answer alone: what the encoder made of the
 * prompt is not part of one, so such models run without, and say so before anything is read.
 */
#ifndef APP_RUN_ENCODER_H
#define APP_RUN_ENCODER_H

#include <stddef.h>

#include "engine/engine.h"

/*
 * CELLAR_UNSUPPORTED: there is a session (its path is not NULL), or the file does not say how an answer
 * begins. Models without an encoder pass.
 */
cellar_status run_encoder_check(const model *m, const char *session_path, cellar_error *error);

/*
 * Encode the prompt, tokens [*n], for sequence 0; what is to be decoded takes its place, tokens [*n]
 * again. Models without an encoder: no effect. Statuses: engine_encode's.
 */
cellar_status run_encoder_read(engine *e, cellar_token *tokens, size_t *n, cellar_error *error);

#endif /* APP_RUN_ENCODER_H */
