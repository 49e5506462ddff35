/*
 * session.c: a conversation is saved, and goes on in another memory.
 *
 * The file says whose it is: facts, which have to be the same when it is loaded (the architecture, a hash of the
 * weights). It appears whole or not at all, and a damaged or foreign one is refused with a reason.
 */
#include "toy_model.h"

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "tale.cellar";
    const char *weights = "1f3870be";
    const cellar_note facts[] = {{"architecture", "toy", 3}, {"weights", weights, 8}};
    cellar_layer layer = toy_layer();
    cellar_config config = toy_config(&layer, 512);
    cellar_memory *evening, *morning;
    cellar_session *session;
    cellar_error error;
    char guess, text[200] = "the king has a golden ball. ";
    uint32_t length = (uint32_t)strlen(text);

    must(cellar_create(&config, &evening, &error), &error);
    must(toy_read(evening, 0, text, 0, &guess, &error), &error);
    cellar_save_options save = cellar_save_options_init();
    save.facts = facts;
    save.n_facts = 2;
    must(cellar_save_session(evening, &save, path, &error), &error);
    cellar_destroy(evening);

    /* Another process, another day, a smaller memory that keeps its rows in half the bytes. */
    layer.k_type = layer.v_type = CELLAR_Q8_0;
    config = toy_config(&layer, 128);
    must(cellar_create(&config, &morning, &error), &error);
    must(cellar_open_session(path, NULL, &session, &error), &error);
    cellar_load_options load = cellar_load_options_init();
    load.facts = facts;
    load.n_facts = 2;
    must(cellar_load_session(morning, session, &load, &error), &error);
    toy_say(morning, 0, strcat(text, "the king has"), length);
    printf("%s\n", text);

    /* With other weights the rows would mean something else. */
    const cellar_note others[] = {{"architecture", "toy", 3}, {"weights", "45b963ae", 8}};
    load.facts = others;
    cellar_status status = cellar_load_session(morning, session, &load, &error);
    printf("%s: %s\n", cellar_status_text(status), error.message);
    cellar_close_session(session);
    cellar_destroy(morning);
    remove(path);
    return status == CELLAR_MISMATCH ? 0 : 1;
}
