/*
 * completion_request.h: the body of a request for text becomes a job_request.
 *
 * The members that all APIs share are read here, each with its other names; what is known and cannot be done (a
 * grammar, an adapter) is refused by its name, what is not known is ignored.
 */
#ifndef APP_COMPLETION_REQUEST_H
#define APP_COMPLETION_REQUEST_H

#include "serve/server.h"

/* What is asked for beside the text. */
typedef struct completion_wishes {
    bool is_stream, includes_usage, tells_each_timing, wants_tokens;
} completion_wishes;

/*
 * Read everything but the prompt. What is wrong is in *f. The request's owner and client are set; it is to be
 * freed by job_request_free whatever happens. CELLAR_NO_MEMORY.
 */
cellar_status completion_request_read(server *s, const http_request *request, fields *f,
                                      job_request *out, completion_wishes *wishes,
                                      cellar_error *error);

/* One prompt: a text, a list of tokens, or a list of both. What is wrong is in *f. */
cellar_status completion_request_prompt(const server *s, fields *f, const char *name,
                                        const json_t *prompt, job_request *out,
                                        cellar_error *error);

/*
 * One prompt, or several: a list of texts, or a list in which each is a text or a list of its own. There are out->n_choices
 * choices of each then. What is wrong is in *f. CELLAR_NO_MEMORY.
 */
cellar_status completion_request_prompts(const server *s, fields *f, const char *name,
                                         job_request *out, cellar_error *error);

/* Add stops: a text or a list of texts. What is wrong is in *f. CELLAR_NO_MEMORY. */
cellar_status completion_request_stops(fields *f, const char *name, job_request *out,
                                       cellar_error *error);

#endif /* APP_COMPLETION_REQUEST_H */
