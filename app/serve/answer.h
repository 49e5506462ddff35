/*
 * answer.h: what comes out of a job is written down, whole or as a stream, in the words of one API.
 *
 * An API is an answer_format: functions that say what a piece, the end of a choice, and the end of it all look
 * like as events of a stream, and what the whole looks like. The rest is common: pieces are taken and
 * gathered, a client that went away cancels the job, a failure before anything was said is an HTTP
 * error, later an event.
 */
#ifndef APP_ANSWER_H
#define APP_ANSWER_H

#include "serve/completion_request.h"
#include "serve/server.h"

typedef struct answer answer;

/* Functions may be NULL, but for `whole`. */
typedef struct answer_format {
    const char *id_prefix;
    const char *last_line;    /* ends a stream, "data: [DONE]"; NULL: nothing */
    bool names_events;        /* each event has a line with its "type" */
    void (*begin)(answer *a); /* events before all others */
    void (*piece)(answer *a, const job_piece *piece);
    void (*choice_ends)(answer *a, uint32_t choice);
    void (*end)(answer *a);
    json_t *(*whole)(answer *a); /* NULL: no memory */
} answer_format;

/* What was written for one choice. */
typedef struct answer_choice {
    char *text; /* [n_text] */
    size_t n_text, capacity;
    cellar_token *tokens; /* [n_tokens] */
    size_t n_tokens, tokens_capacity;
    json_t *probabilities; /* one entry for each token, as the format made it; NULL: none */
    json_t *more;          /* whatever else the format keeps; NULL */
    bool has_begun, has_ended;
    job_report report; /* when it has ended */
} answer_choice;

struct answer {
    server *server;
    const answer_format *format;
    job *job;
    http_request *request; /* while it may be used: not after the stream's last part */
    completion_wishes wishes;
    int64_t created;
    char id[SERVER_ID_BYTES];
    json_t *echo; /* what the format wants to say again; NULL */
    bool is_legacy_probabilities;
    answer_choice *choices; /* [n_choices] */
    uint32_t n_choices;
    char *out; /* [n_out] events that are not sent yet */
    size_t n_out, out_capacity;
    bool is_out_of_memory, is_over;
};

/*
 * Queue the request and make the reply. The request is used up. `echo` is taken over, and may be NULL.
 */
void answer_make(server *s, http_request *request, const answer_format *format, job_request *asked,
                 const completion_wishes *wishes, json_t *echo);

/* ---- for formats ---------------------------------------------------------------------------- */

/* Say an event; taken over. */
void answer_say(answer *a, json_t *event);
/* Say the event that ends a choice; the last one has the figures, unless an event of their own follows. */
void answer_say_end(answer *a, json_t *event);
/* Make the beginning of an event into the one that has no choices, but usage and figures; and say it. */
void answer_say_usage(answer *a, json_t *event);

/* {"cached_tokens", ...} and the like, each a new object. */
json_t *answer_usage(const answer *a);
json_t *answer_timings(const answer *a);
json_t *answer_reuse(const answer *a); /* the member "cellar" */
/* Add "timings" and "cellar". */
void answer_add_figures(const answer *a, json_t *to);

json_t *answer_text_of(const answer_choice *choice); /* all its text */
json_t *answer_piece_text(const job_piece *piece);
/* "stop" or "length" */
const char *answer_finish_reason(const job_report *its);

/* {"token", "bytes", "logprob"} and, with a name, the likeliest as a list of the same under that name. */
json_t *answer_probability(const answer *a, const job_piece *piece, const char *top_name);

#endif /* APP_ANSWER_H */
