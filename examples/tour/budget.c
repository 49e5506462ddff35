/*
 * budget.c: how many bytes, whose bytes, and a limit.
 *
 * cellar_measure says what a configuration needs before anything is asked for. What is asked for goes through
 * the allocator of the caller, and the rows, if he likes, into a store of his own: huge pages, a mapped
 * file, a device. Beyond budget_bytes nothing is asked for.
 */
#include "toy_model.h"

typedef struct counter {
    size_t bytes;
} counter;

static void *allocate(void *context, size_t size, size_t align)
{
    counter *c = context;
    void *block = aligned_alloc(align, (size + align - 1) / align * align);
    if (block) c->bytes += size;
    return block;
}

static void release(void *context, void *block, size_t size)
{
    counter *c = context;
    c->bytes -= size;
    free(block);
}

/* A store without addresses, as a device has: everything goes through these. */
typedef struct device {
    counter memory;
    size_t written; /* bytes */
} device;

static void *make_buffer(void *context, size_t size)
{
    return allocate(&((device *)context)->memory, size, 64);
}

static void drop_buffer(void *context, void *buffer, size_t size)
{
    release(&((device *)context)->memory, buffer, size);
}

static bool read_buffer(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    memcpy(to, (char *)buffer + offset, size);
    (void)context;
    return true;
}

static bool write_buffer(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    memcpy((char *)buffer + offset, from, size);
    ((device *)context)->written += size;
    return true;
}

static bool copy_buffer(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                        size_t size)
{
    (void)context;
    memmove((char *)to + to_offset, (char *)from + from_offset, size);
    return true;
}

static bool clear_buffer(void *context, void *buffer, size_t offset, size_t size)
{
    (void)context;
    memset((char *)buffer + offset, 0, size);
    return true;
}

int main(void)
{
    counter small = {0};
    device gpu = {{0}, 0};
    const cellar_row_store store = {.allocate = make_buffer,
                                    .release = drop_buffer,
                                    .read = read_buffer,
                                    .write = write_buffer,
                                    .copy = copy_buffer,
                                    .clear = clear_buffer,
                                    .context = &gpu};
    cellar_layer layer = toy_layer();
    layer.store = &store;
    cellar_config config = toy_config(&layer, 256);
    config.allocator =
        (cellar_allocator){.allocate = allocate, .release = release, .context = &small};
    cellar_memory *memory;
    cellar_sizes sizes;
    cellar_error error;
    char guess;

    must(cellar_measure(&config, &sizes, &error), &error);
    must(cellar_create(&config, &memory, &error), &error);
    printf("rows %zu KiB, all in all as measured: %s\n", gpu.memory.bytes / 1024,
           small.bytes + gpu.memory.bytes == sizes.total ? "yes" : "no");
    must(toy_read(memory, 0, "a stitch in time saves nine.", 0, &guess, &error), &error);
    printf("28 letters: %zu bytes written to the store\n", gpu.written);
    cellar_destroy(memory);
    printf("left after the end: %zu bytes\n", small.bytes + gpu.memory.bytes);

    /* One byte too few is refused before anything is asked for. */
    config.budget_bytes = sizes.total - 1;
    cellar_status status = cellar_create(&config, &memory, &error);
    printf("%s, %s\n", cellar_status_text(status), cellar_reason_text(error.reason));
    return status == CELLAR_INVALID && small.bytes == 0 ? 0 : 1;
}
