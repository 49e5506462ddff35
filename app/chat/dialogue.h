/*
 * dialogue.h: named conversations with a model, over one memory, in which nothing is read twice.
 *
 * A dialogue is its messages; the sequence behind it holds a text that they once were. Before an
 * answer the messages are rendered anew, the text is compared with what the sequence holds, the
 * sequence goes back to where both part, and only the rest is read. So it does not matter what was
 * done to the messages: said, taken back, replaced. Whatever still agrees is still there.
 *
 *     messages    system, user, assistant, user              what was said
 *     text        <s>[INST] Hello [/INST] Hi!</s>[INST] ...  rendered, with its tokens
 *     sequence    the first n of these tokens                what the memory holds
 *
 * What the model wrote stays as it was written, token by token, as long as the rendered text says the
 * same; it is not cut into tokens anew. A new dialogue, or one that was changed, takes over what
 * another one holds if that agrees further: cells are shared, not read again. Windows and recurrent
 * states can only go back to checkpoints; they are made before the last token of a prompt and behind
 * an answer, where people go back to.
 *
 * When the cells are full the oldest turns are forgotten: the system's message stays, what follows
 * the gap moves up (cellar_shift_context) and is not read again where the text allows it.
 *
 * There is no terminal in here: callers are told by callbacks. One thread at a time.
 */
#ifndef APP_DIALOGUE_H
#define APP_DIALOGUE_H

#include "chat/chat_renderer.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/sampler.h"

#define DIALOGUE_LONGEST_NAME 64u

typedef struct dialogue {
    char *name;
    cellar_seq seq;
    json_t *messages;     /* array of {"role", "content"}; the first may be the system's */
    uint32_t n_forgotten; /* messages behind the system's that are not rendered any more */
    bool is_open;         /* the last message is an answer that was broken off */
    chat_text text;       /* the sequence holds a beginning of it: dialogue_held */
} dialogue;

typedef struct dialogues {
    engine *engine;
    const tokenizer *tokenizer;
    const chat_encoder *encoder;
    chat_renderer renderer;
    dialogue **list; /* [n] in the order in which they were made */
    uint32_t n, capacity;
    cellar_seq next; /* name of the next sequence */
} dialogues;

/* How an answer is made, and who is told. Functions may be NULL. */
typedef struct dialogue_options {
    sampler_options sampling;
    uint64_t generator[4]; /* where the random numbers stand; zeros: at the seed. Moved on. */
    uint64_t n_limit;      /* most tokens to write; UINT64_MAX: no limit */
    bool stops_when_full;  /* instead of forgetting the oldest turns */
    bool ends_with_line;   /* an answer is one line */
    bool ignore_end;       /* never choose a token that ends the text */
    void *context;
    void (*progress)(void *context, size_t n_read, size_t n_prompt);
    bool (*text)(void *context, const char *bytes, size_t n); /* valid UTF-8; false: cannot write */
    bool (*should_stop)(void *context);                       /* asked before each layer */
    void (*forgot)(void *context, uint32_t n_messages, uint32_t n_tokens);
} dialogue_options;

typedef struct dialogue_result {
    generate_ended ended;
    size_t n_prompt; /* tokens of the prompt, */
    size_t n_reused; /* of which so many were held, */
    size_t n_read;   /* and so many were read (again: those behind a checkpoint) */
    uint64_t n_written;
    uint32_t n_forgotten; /* messages */
    double read_seconds, write_seconds;
} dialogue_result;

/* Everything zero but n_limit (none) and sampling (its defaults). */
dialogue_options dialogue_options_defaults(void);

/* ---- dialogues ------------------------------------------------------------------------------ */

/* Fill in engine, tokenizer, encoder and renderer; the rest zero. */
void dialogues_free(dialogues *all); /* and what their sequences hold */
dialogue *dialogues_find(const dialogues *all, const char *name);

/*
 * A new one, with a message of the system or (NULL) without. CELLAR_INVALID: the name is in use, or
 * none (1..64 bytes, printable); CELLAR_NO_MEMORY.
 */
cellar_status dialogues_add(dialogues *all, const char *name, const char *system, dialogue **out,
                            cellar_error *error);

/* One that shares everything that was said and read so far. As above, and as cellar_copy. */
cellar_status dialogues_fork(dialogues *all, const dialogue *from, const char *name, dialogue **out,
                             cellar_error *error);

/* Forget it and what it alone holds. */
void dialogues_drop(dialogues *all, dialogue *gone);

/* How many tokens of the text the memory holds. */
uint32_t dialogue_held(const dialogues *all, const dialogue *d);

/* ---- messages ------------------------------------------------------------------------------- */

/* Bytes that are not UTF-8 become U+FFFD. Behind a message that was not answered they are added to it. */
cellar_status dialogue_say(dialogue *d, const char *bytes, size_t n, cellar_error *error);

/* Set (n > 0) or take away the message of the system. CELLAR_NO_MEMORY. */
cellar_status dialogue_set_system(dialogues *all, dialogue *d, const char *bytes, size_t n,
                                  cellar_error *error);
bool dialogue_has_system(const dialogue *d);

/* Turns: a message of the user and what followed it. */
uint32_t dialogue_turns(const dialogue *d);

/* Take back the last n turns, or all messages but the first n. CELLAR_INVALID: there are not as many. */
cellar_status dialogue_rewind(dialogues *all, dialogue *d, uint32_t n_turns, cellar_error *error);
cellar_status dialogue_keep(dialogues *all, dialogue *d, uint32_t n_messages, cellar_error *error);

/* Take back the last answer, so that another can be made. CELLAR_INVALID: there is none. */
cellar_status dialogue_take_answer(dialogues *all, dialogue *d, cellar_error *error);

/* The last message waits for an answer, or is one that was broken off. */
bool dialogue_is_waiting(const dialogue *d);

/* ---- answers -------------------------------------------------------------------------------- */

/*
 * Read what is not read yet, and let the model answer the last message, or go on with an answer that
 * was broken off. *result is filled in also after a failure: what was read and written until then
 * stays, in the memory and in the messages. CELLAR_INVALID: nothing waits, or the template refuses
 * the messages; CELLAR_FULL; and what engine_decode and chat_template_render return.
 */
cellar_status dialogue_answer(dialogues *all, dialogue *d, dialogue_options *options,
                              dialogue_result *result, cellar_error *error);

/* ---- for the files of dialogue_*.c ---------------------------------------------------------- */

/*
 * Make the text of *d the rendered bytes, and let its sequence hold as much of it as can be had
 * without reading, but not the last token. *n_held is how much.
 */
cellar_status dialogue_bring(dialogues *all, dialogue *d, const char *bytes, size_t n,
                             uint32_t *n_held, cellar_error *error);

/* The bytes for an answer, malloc'ed; of an answer that was broken off, what is there of it too. */
cellar_status dialogue_render(const dialogues *all, const dialogue *d, bool asks, char **bytes,
                              size_t *n, cellar_error *error);

/* Let go of what the messages do not say any more. Where that cannot be found out: nothing. */
void dialogue_trim(dialogues *all, dialogue *d);

/* Forget the oldest turn. CELLAR_FULL: the last one is never forgotten. */
cellar_status dialogue_forget_turn(dialogues *all, dialogue *d, uint32_t *n_messages,
                                   uint32_t *n_tokens, cellar_error *error);

#endif /* APP_DIALOGUE_H */
