/*
 * fork.c: one conversation becomes two, and one of them takes something back.
 *
 * A fork shares cells: nothing is copied, and whatever one of the two does then, the other does not
 * notice. Going back is removing the end of a sequence.
 */
#include "toy_model.h"

int main(void)
{
    cellar_layer layer = toy_layer();
    cellar_config config = toy_config(&layer, 512);
    cellar_memory *memory;
    cellar_statistics statistics;
    cellar_error error;
    char guess, ann[200] = "my cat is black. ", bob[200];
    must(cellar_create(&config, &memory, &error), &error);

    must(toy_read(memory, 0, ann, 0, &guess, &error), &error);
    must(cellar_copy(memory, 0, 1, 0, -1, &error), &error); /* fork: all of 0 is 1's too */
    strcpy(bob, ann);
    uint32_t shared = (uint32_t)strlen(ann);

    toy_say(memory, 0, strcat(ann, "my dog is white. my cat is"), shared);
    toy_say(memory, 1, strcat(bob, "my dog is brown. my dog is"), shared);
    must(cellar_stats(memory, &statistics, &error), &error);
    printf("0: %s\n1: %s\n", ann, bob);
    printf("%zu letters in %u cells\n", strlen(ann) + strlen(bob), statistics.n_used);

    /* 1 takes back all but the cat, and then reads of another dog. */
    must(cellar_remove(memory, 1, (cellar_pos)shared, -1, &error), &error);
    bob[shared] = '\0';
    toy_say(memory, 1, strcat(bob, "my dog is old. my dog is"), shared);
    printf("1: %s\n", bob);

    /* 0 loses its middle, the dog, and asked for it can only think of the cat. */
    must(cellar_remove(memory, 0, (cellar_pos)shared, (cellar_pos)shared + 17, &error), &error);
    uint32_t end = (uint32_t)strlen(ann);
    toy_say(memory, 0, strcat(ann, " my dog is"), end);
    printf("0: %s\n", ann + shared + 17);
    cellar_destroy(memory);
    return 0;
}
