/*
 * fuzz_operations.c: any sequence of calls, on any kind of memory, leaves it sound.
 *
 * The input chooses the memory, the calls, their arguments and which allocations fail: see
 * tests/support_any_play.h, which tests/unit_soundness.c drives with random bytes. A demand that does not
 * hold ends the process.
 */
#include "support_any_play.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    any_play(data, size);
    return 0;
}
