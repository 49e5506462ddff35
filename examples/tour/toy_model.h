/*
 * toy_model.h: the smallest model that shows what it remembers.
 *
 * It reads letters and guesses the next one: the letter that followed when it last read what was read
 * just now. That is attention with weights that need no training: the key of a letter is the six letters
 * before it, its value the letter itself, and the query the last six letters. Keys and queries carry a clock,
 * too, which turns with the position (RoPE): of two places that fit equally well the later one wins.
 * So whatever Cellar forgets, forks or moves is seen in what the model says.
 */
#ifndef TOY_MODEL_H
#define TOY_MODEL_H

#include <cellar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOY_LETTERS = 32,
    TOY_CONTEXT = 6,
    TOY_CLOCK = TOY_LETTERS * TOY_CONTEXT, /* where the clock begins in a key */
    TOY_KEY = TOY_CLOCK + 32,
    TOY_UBATCH = 32
};

/* The tour's programs end at the first refusal that they do not expect; yours will rather go on. */
static inline void must(cellar_status status, const cellar_error *error)
{
    if (status == CELLAR_OK) return;
    fprintf(stderr, "%s: %s\n", cellar_status_text(status), error->message);
    exit(1);
}

static const char toy_alphabet[] = " abcdefghijklmnopqrstuvwxyz.,:?!";

static inline cellar_token toy_token(char letter)
{
    const char *place = letter ? strchr(toy_alphabet, letter) : NULL;
    return place ? (cellar_token)(place - toy_alphabet) : 0;
}

/* What Cellar has to know about the toy's one layer. */
static inline cellar_layer toy_layer(void)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = TOY_KEY;
    layer.v_size = TOY_LETTERS;
    layer.scale = 1;
    layer.rope.kind = CELLAR_ROPE_NEOX;
    layer.rope.first = TOY_CLOCK;
    layer.rope.n_rot = TOY_KEY - TOY_CLOCK;
    layer.rope.base = 100;
    layer.rope.scale = 1.0 / 64; /* so slow that within 200 positions later is always nearer */
    return layer;
}

static inline cellar_config toy_config(const cellar_layer *layer, uint32_t n_cells)
{
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = layer;
    config.n_cells = n_cells;
    config.n_ubatch = TOY_UBATCH;
    return config;
}

/* The six letters before `place`, each as a 1 among 32, and the clock at rest. */
static inline void toy_context(float *row, const char *text, uint32_t place, float strength,
                               float clock)
{
    memset(row, 0, TOY_KEY * sizeof *row);
    for (uint32_t back = 1; back <= TOY_CONTEXT && back <= place; back++)
        row[(back - 1) * TOY_LETTERS + (uint32_t)toy_token(text[place - back])] = strength;
    for (uint32_t i = 0; i < (TOY_KEY - TOY_CLOCK) / 2; i++)
        row[TOY_CLOCK + i] = clock;
}

/*
 * Compute the open step, of which token i is the letter text[from + i]: all micro-batches, the one
 * layer. *guess becomes what follows the last letter.
 */
static inline cellar_status toy_compute(cellar_memory *memory, const char *text, uint32_t from,
                                        char *guess, cellar_error *error)
{
    float k[TOY_UBATCH * TOY_KEY], q[TOY_UBATCH * TOY_KEY];
    float v[TOY_UBATCH * TOY_LETTERS], out[TOY_UBATCH * TOY_LETTERS];
    for (uint32_t number = 0; number < cellar_count_ubatches(memory); number++) {
        cellar_ubatch ubatch;
        cellar_status status = cellar_get_ubatch(memory, number, &ubatch, error);
        if (status != CELLAR_OK) return status;
        memset(v, 0, sizeof v);
        for (uint32_t i = 0; i < ubatch.n_tokens; i++) {
            uint32_t place = from + ubatch.indices[i];
            toy_context(k + i * TOY_KEY, text, place, 1, 1);
            toy_context(q + i * TOY_KEY, text, place + 1, 12, 0.5f);
            v[i * TOY_LETTERS + (uint32_t)toy_token(text[place])] = 1;
        }
        status = cellar_store(memory, number, 0, k, v, error);
        if (status != CELLAR_OK) return status;
        status = cellar_attend(memory, number, 0, q, out, error);
        if (status != CELLAR_OK) return status;
        const float *last = out + (ubatch.n_tokens - 1) * TOY_LETTERS;
        uint32_t best = 0;
        for (uint32_t i = 1; i < TOY_LETTERS; i++)
            if (last[i] > last[best]) best = i;
        *guess = toy_alphabet[best];
    }
    return CELLAR_OK;
}

/*
 * Read text[from..] at the end of a sequence, and guess what follows. `text` is all that the sequence
 * has read, since keys look six letters back. A failure leaves the sequence as it was.
 */
static inline cellar_status toy_read(cellar_memory *memory, cellar_seq seq, const char *text,
                                     uint32_t from, char *guess, cellar_error *error)
{
    cellar_token tokens[512];
    cellar_seq seqs[512];
    cellar_batch batch = cellar_batch_init();
    batch.tokens = tokens;
    batch.seqs = seqs;
    for (const char *letter = text + from; *letter && batch.n_tokens < 512; letter++) {
        tokens[batch.n_tokens] = toy_token(*letter);
        seqs[batch.n_tokens++] = seq;
    }
    cellar_status status = cellar_begin(memory, &batch, error);
    if (status != CELLAR_OK) return status;
    status = toy_compute(memory, text, from, guess, error);
    if (status == CELLAR_OK) status = cellar_commit(memory, error);
    if (status != CELLAR_OK) cellar_abort(memory);
    return status;
}

/* Read text[from..], and say what comes to mind up to the next full stop, at most 40 letters. */
static inline void toy_say(cellar_memory *memory, cellar_seq seq, char *text, uint32_t from)
{
    cellar_error error;
    char guess[2] = "";
    must(toy_read(memory, seq, text, from, guess, &error), &error);
    for (int i = 0; i < 40; i++) {
        size_t length = strlen(text);
        strcat(text, guess);
        must(toy_read(memory, seq, text, (uint32_t)length, guess, &error), &error);
        if (text[length] == '.') break;
    }
}

#endif
