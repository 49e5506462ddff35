/*
 * window.c: a layer that sees only the last 32 tokens, and how far one can go back.
 *
 * Cells that fell out of a window stay while there is room, and are given up, oldest first, when there is
 * none. So going back is free only as far as rewind_min; from further back some tokens have to be read
 * again, and the memory says from where. It never goes on silently without them.
 */
#include "toy_model.h"

int main(void)
{
    cellar_layer layer = toy_layer();
    layer.window = (cellar_window){.kind = CELLAR_WINDOW_STANDARD, .size = 32};
    cellar_config config = toy_config(&layer, 512); /* the window's group needs only 32 + 32 */
    cellar_memory *memory;
    cellar_sequence_info info;
    cellar_error error;
    cellar_pos from;
    char guess, text[200] = "one for the master, one for the dame, and one for the little boy "
                            "who lives down the lane.";
    must(cellar_create(&config, &memory, &error), &error);
    must(toy_read(memory, 0, text, 0, &guess, &error), &error);
    must(cellar_get_sequence(memory, 0, &info, &error), &error);
    printf("%zu letters read, positions %d to %d are held\n", strlen(text), info.pos_min,
           info.pos_max);
    printf("free to go back to %d and behind\n", info.rewind_min);

    /* Back to where the boy comes in: can the sequence go on there? */
    cellar_pos boy = (cellar_pos)(strstr(text, "little") - text);
    cellar_status status = cellar_can_continue(memory, 0, boy, &from, &error);
    printf("at %d: %s\n", boy, status == CELLAR_OK ? "yes" : cellar_status_text(status));

    /* Go as far as is possible, and read what is missing. */
    must(cellar_rewind(memory, 0, boy, &from, &error), &error);
    printf("go back to %d, read %d letters again\n", from, boy - from);
    strcpy(text + boy, "old man.");
    must(toy_read(memory, 0, text, (uint32_t)from, &guess, &error), &error);
    printf("%s\n", text);
    cellar_destroy(memory);
    return 0;
}
