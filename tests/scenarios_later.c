/*
 * scenarios_later.c: scenarios and faults of the original that cannot run yet.
 *
 * They are about things that the library or the program does not have so far: saved states, a store
 * of prefixes, a server. They are counted as skipped, each with its reason, so that none is
 * forgotten; whoever builds the thing takes the entry out and writes the test.
 */
#include "scenarios.h"

const scenario_later scenarios_later[] = {
    {"S22 the best cached prefix wins, whichever slot", "there is no server yet (step 6)"},
    {"S24 what belongs to the cache key", "there is no store of prefixes yet (steps 3 and 6)"},
    {NULL, NULL},
};
