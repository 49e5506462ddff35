/*
 * prefixes.c: a prompt begins where another one already is.
 *
 * The prefix library knows the tokens of what was read. attach starts a sequence as a fork of what is worth most
 * to it, begin makes room when there is none, extend says what was read since, retain keeps it all for the
 * next one. With a folder in its configuration the library also finds it after a restart.
 */
#include "toy_model.h"

static void answer(cellar_library *library, cellar_memory *memory, cellar_seq seq, const char *text)
{
    cellar_error error;
    cellar_prefix prefix;
    cellar_prefix_key key = cellar_prefix_key_init();
    cellar_token tokens[256] = {0};
    uint32_t n = 0;
    for (const char *letter = text; *letter && n < 256; letter++)
        tokens[n++] = toy_token(*letter);

    /* The last token is read in any case: its result is the next guess. */
    must(cellar_library_attach(library, &key, seq, tokens, n, n - 1, &prefix, &error), &error);
    cellar_seq seqs[256];
    for (uint32_t i = 0; i < n; i++)
        seqs[i] = seq;
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n - prefix.reused;
    batch.tokens = tokens + prefix.reused;
    batch.seqs = seqs;
    char guess;
    must(cellar_library_begin(library, &batch, &error), &error);
    must(toy_compute(memory, text, prefix.reused, &guess, &error), &error);
    must(cellar_commit(memory, &error), &error);
    must(cellar_library_extend(library, seq, batch.tokens, batch.n_tokens, &error), &error);
    printf("%2u of %2u letters reused (%s, %s): %s-> %c\n", prefix.reused, n,
           cellar_prefix_source_text(prefix.source), cellar_prefix_reason_text(prefix.reason), text,
           guess);
    must(cellar_library_retain(library, seq, NULL, &error), &error); /* its name is free again */
}

int main(void)
{
    const cellar_note facts[] = {{"weights", "1f3870be", 8}};
    cellar_layer layer = toy_layer();
    cellar_config config = toy_config(&layer, 128);
    cellar_memory *memory;
    cellar_library *library;
    cellar_error error;
    must(cellar_create(&config, &memory, &error), &error);
    cellar_library_config shelf = cellar_library_config_init();
    shelf.facts = facts;
    shelf.n_facts = 1;
    must(cellar_library_create(memory, &shelf, &library, &error), &error);

    answer(library, memory, 0, "red or blue? red. up or down? down. red or blue? ");
    answer(library, memory, 0, "red or blue? red. up or down? down. up or down? ");
    answer(library, memory, 0, "red or blue? red. up or down? down. up or down? ");
    answer(library, memory, 0, "who is there? me. who is there? ");
    cellar_library_destroy(library); /* before its memory */
    cellar_destroy(memory);
    return 0;
}
