/*
 * run_encoder.c: prompts for encoders (run_encoder.h).
 *
 * Nothing is kept here: the encoding is the engine's. Fails as the engine does, and then the tokens are as
 * they were.
 */
#include "cli/run_encoder.h"

#include <inttypes.h>

#include "report.h"

cellar_status run_encoder_check(const model *m, const char *session_path, cellar_error *error)
{
    if (m->encoder == NULL) {
        return CELLAR_OK;
    }
    if (session_path != NULL) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "models of architecture %s run without --session: a session does not hold "
                      "what an encoder has read",
                      m->architecture->name);
    }
    if (m->encoder->start < 0) {
        return report(error, CELLAR_UNSUPPORTED, -1,
                      "%s.decoder_start_token_id: expected this key, as an answer begins with that "
                      "token, found none",
                      m->architecture->name);
    }
    return CELLAR_OK;
}

cellar_status run_encoder_read(engine *e, cellar_token *tokens, size_t *n, cellar_error *error)
{
    const model_encoder *encoder = engine_model(e)->encoder;
    if (encoder == NULL) {
        return CELLAR_OK;
    }
    if (*n > engine_ubatch(e)) {
        return report(error, CELLAR_FULL, -1,
                      "the text for the encoder has %zu tokens, and it is read at once: use larger "
                      "micro-batches (--ubatch, and as many cells) than %" PRIu32,
                      *n, engine_ubatch(e));
    }
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = (uint32_t)*n;
    batch.tokens = tokens;
    cellar_status status = engine_encode(e, &batch, error);
    if (status == CELLAR_OK) {
        tokens[0] = encoder->start;
        *n = 1;
    }
    return status;
}
