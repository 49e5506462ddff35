/*
 * unit_storage.c: rows in chunks, in the library's memory and in callers' stores.
 *
 * A plain array of what was written is the truth: every row read back must be what was written to
 * it, whatever is stored beside it, however often the storage grows and shrinks, and whichever
 * buffers have an address. A store that fails at its n-th call is tried for every n: the call must
 * say so, and nothing may be held that was not held before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage.h"

/* ---- a store that can be told to fail --------------------------------------------------------- */

typedef enum addressing { ALWAYS, NEVER, SOMETIMES } addressing;

typedef struct test_store {
    addressing addresses;
    uint32_t n_buffers, n_asked; /* held now; ever */
    size_t bytes;                /* held now */
    uint32_t calls, fail_at;     /* the call with this number fails; 0: none */
    uint32_t n_reads, n_writes, n_copies;
} test_store;

typedef struct test_buffer {
    unsigned char *bytes;
    size_t size;
    bool has_address;
} test_buffer;

static bool fails(test_store *s)
{
    return ++s->calls == s->fail_at;
}

static void *store_allocate(void *context, size_t size)
{
    test_store *s = context;
    if (fails(s)) return NULL;
    test_buffer *buffer = malloc(sizeof *buffer);
    *buffer = (test_buffer){aligned_alloc(64, size), size,
                            s->addresses == ALWAYS ||
                                (s->addresses == SOMETIMES && s->n_asked % 2 == 0)};
    s->n_asked++;
    s->n_buffers++;
    s->bytes += size;
    return buffer;
}

static void store_release(void *context, void *buffer, size_t size)
{
    test_store *s = context;
    test_buffer *b = buffer;
    assert_int_equal(b->size, size);
    s->n_buffers--;
    s->bytes -= size;
    free(b->bytes);
    free(b);
}

static void *store_address(void *context, void *buffer)
{
    (void)context;
    test_buffer *b = buffer;
    return b->has_address ? b->bytes : NULL;
}

static unsigned char *inside(void *buffer, size_t offset, size_t size)
{
    test_buffer *b = buffer;
    assert_false(b->has_address); /* such a buffer is used directly */
    assert_true(offset <= b->size && size <= b->size - offset);
    return b->bytes + offset;
}

static bool store_read(void *context, void *buffer, size_t offset, void *to, size_t size)
{
    test_store *s = context;
    s->n_reads++;
    if (fails(s)) return false;
    memcpy(to, inside(buffer, offset, size), size);
    return true;
}

static bool store_write(void *context, void *buffer, size_t offset, const void *from, size_t size)
{
    test_store *s = context;
    s->n_writes++;
    if (fails(s)) return false;
    memcpy(inside(buffer, offset, size), from, size);
    return true;
}

static bool store_copy(void *context, void *to, size_t to_offset, void *from, size_t from_offset,
                       size_t size)
{
    test_store *s = context;
    s->n_copies++;
    if (fails(s)) return false;
    memcpy(inside(to, to_offset, size), inside(from, from_offset, size), size);
    return true;
}

static cellar_row_store store_of(test_store *s)
{
    return (cellar_row_store){.allocate = store_allocate,
                              .release = store_release,
                              .address = s->addresses == NEVER ? NULL : store_address,
                              .read = store_read,
                              .write = store_write,
                              .copy = store_copy,
                              .context = s};
}

/* ---- a storage of three kinds of rows in two stores ------------------------------------------- */

enum { N_ROWS = 3, HEADS = 2, SIZE = 64 };

typedef struct fixture {
    cl_alloc alloc;
    cl_kernels kernels;
    test_store store;
    cellar_row_store stores[2];
    cl_storage_layout layout;
    cl_rows rows[N_ROWS];
    cl_storage storage;
    _Alignas(64) float scratch[CL_BLOCK * SIZE];
    unsigned char raw[CL_BLOCK * SIZE * 4];
} fixture;

static void describe(fixture *f, addressing addresses, cellar_type type)
{
    cellar_allocator none = {NULL, NULL, NULL, NULL};
    memset(f, 0, sizeof *f);
    cl_alloc_init(&f->alloc, &none, 0);
    cl_kernels_fill(&f->kernels, UINT32_MAX);
    f->store.addresses = addresses;
    f->stores[1] = store_of(&f->store);
    f->layout = (cl_storage_layout){.cells_a_block = CL_BLOCK, .kind = CELLAR_BYTES_ROWS};
    assert_true(cl_storage_add(&f->layout, &f->rows[0], HEADS, SIZE, CELLAR_F32, 0));
    assert_true(cl_storage_add(&f->layout, &f->rows[1], HEADS, SIZE, type, 1));
    assert_true(cl_storage_add(&f->layout, &f->rows[2], 1, SIZE, CELLAR_F32, 1));
}

static cellar_status create(fixture *f, uint32_t n_blocks, cellar_error *error)
{
    return cl_storage_create(&f->storage, &f->layout, f->rows, N_ROWS, f->stores, 2, n_blocks,
                             &f->alloc, error);
}

static void start(fixture *f, addressing addresses, uint32_t n_blocks)
{
    describe(f, addresses, CELLAR_BF16);
    assert_int_equal(create(f, n_blocks, NULL), CELLAR_OK);
}

static void nothing_is_held(const fixture *f)
{
    assert_int_equal(f->alloc.bytes[CELLAR_BYTES_ROWS], 0);
    assert_int_equal(f->store.bytes, 0);
    assert_int_equal(f->store.n_buffers, 0);
    assert_int_equal(f->storage.callers_bytes, 0);
}

static void finish(fixture *f)
{
    cl_storage_destroy(&f->storage);
    nothing_is_held(f);
}

/* Small whole numbers, which every type used here keeps exactly. */
static float number(uint32_t kind, uint32_t head, uint32_t cell, uint32_t i, uint32_t seed)
{
    return (float)((kind * 31 + head * 17 + cell * 7 + i * 3 + seed * 5) % 101) - 50.0f;
}

static bool write_cell(fixture *f, uint32_t cell, uint32_t seed)
{
    float row[SIZE];
    for (uint32_t kind = 0; kind < N_ROWS; kind++)
        for (uint32_t head = 0; head < f->rows[kind].n_heads; head++) {
            for (uint32_t i = 0; i < SIZE; i++)
                row[i] = number(kind, head, cell, i, seed);
            if (!cl_storage_write(&f->storage, &f->rows[kind], &f->kernels, head, cell, row,
                                  f->raw))
                return false;
        }
    return true;
}

/* n cells of one block hold what was written to the cells from `as` on. */
static void check_cells(fixture *f, uint32_t cell, uint32_t n, uint32_t as, uint32_t seed)
{
    for (uint32_t kind = 0; kind < N_ROWS; kind++)
        for (uint32_t head = 0; head < f->rows[kind].n_heads; head++) {
            const float *rows = cl_storage_read(&f->storage, &f->rows[kind], &f->kernels, head,
                                                cell, n, f->scratch, f->raw);
            assert_non_null(rows);
            for (uint32_t j = 0; j < n; j++)
                for (uint32_t i = 0; i < SIZE; i++)
                    assert_true(rows[j * SIZE + i] == number(kind, head, as + j, i, seed));
        }
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void the_public_sizes_are_those_of_the_kernels(void **state)
{
    (void)state;
    cl_kernels kernels;
    memset(&kernels, 0, sizeof kernels);
    cl_kernels_fill(&kernels, 0);
    uint32_t n_types = 0;
    for (int type = -1; type <= CL_ROW_TYPES; type++) {
        bool is_known = type >= 0 && type < CL_ROW_TYPES && kernels.codec[type].block > 0;
        uint32_t block = is_known ? kernels.codec[type].block : 0;
        assert_int_equal(cellar_type_block((cellar_type)type), block);
        assert_int_equal(cellar_type_name((cellar_type)type) != NULL, is_known);
        if (!is_known) {
            assert_int_equal(cellar_type_bytes((cellar_type)type, 32), 0);
            continue;
        }
        n_types++;
        assert_int_equal(cellar_type_bytes((cellar_type)type, 96),
                         96 / block * kernels.codec[type].block_bytes);
        assert_int_equal(cellar_type_bytes((cellar_type)type, 0), 0);
        if (block > 1) assert_int_equal(cellar_type_bytes((cellar_type)type, 33), 0);
        if (type == CELLAR_F32) assert_int_equal(cellar_type_bytes(CELLAR_F32, SIZE_MAX / 2), 0);
    }
    assert_int_equal(n_types, 9);
    assert_string_equal(cellar_type_name(CELLAR_IQ4_NL), "iq4_nl");
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    cl_storage_layout layout = {.cells_a_block = CL_BLOCK};
    cl_rows rows;
    size_t own, callers;
    assert_false(cl_storage_add(&layout, &rows, 1, 33, CELLAR_Q8_0, 0)); /* half a block */
    assert_true(cl_storage_add(&layout, &rows, 65536, 65536, CELLAR_F32, 0));
    layout.block_bytes[0] = SIZE_MAX - 63;
    assert_false(cl_storage_add(&layout, &rows, 65536, 65536, CELLAR_F32, 0));
    assert_false(cl_storage_measure(&layout, 1, 2, &own, &callers));
    layout.block_bytes[0] = 64;
    layout.block_bytes[1] = SIZE_MAX / 4;
    assert_false(cl_storage_measure(&layout, 2, 3, &own, &callers));
}

static void chunks_are_few_and_whole(void **state)
{
    (void)state;
    fixture f;
    for (uint32_t n = 1; n <= 3000; n += 1 + n / 7) {
        size_t own, callers;
        describe(&f, NEVER, CELLAR_Q4_0);
        assert_true(cl_storage_measure(&f.layout, 2, n, &own, &callers));
        start(&f, NEVER, n);
        uint32_t rounded = cl_storage_round(n);
        assert_true(rounded >= n && rounded - n < 1u << f.storage.chunk_shift);
        assert_int_equal(cl_storage_round(rounded), rounded);
        assert_int_equal(f.storage.n_blocks, rounded);
        assert_true(f.storage.n_chunks <= 128);
        assert_true(n <= 128 || f.storage.n_chunks >= 64);
        finish(&f);
        describe(&f, NEVER, CELLAR_Q4_0);
        assert_int_equal(create(&f, n, NULL), CELLAR_OK);
        assert_int_equal(f.alloc.bytes[CELLAR_BYTES_ROWS], own + callers);
        assert_int_equal(f.store.bytes, callers);
        assert_int_equal(f.storage.callers_bytes, callers);
        finish(&f);
    }
}

static void rows_come_out_as_they_went_in(void **state)
{
    (void)state;
    fixture f;
    for (addressing addresses = ALWAYS; addresses <= SOMETIMES; addresses++) {
        start(&f, addresses, 200);
        uint32_t n_cells = f.storage.n_blocks * CL_BLOCK;
        for (uint32_t cell = 0; cell < n_cells; cell++)
            assert_true(write_cell(&f, cell, 0));
        for (uint32_t cell = 0; cell < n_cells; cell += CL_BLOCK) {
            check_cells(&f, cell, CL_BLOCK, cell, 0);
            check_cells(&f, cell + 5, 1 + cell % 27, cell + 5, 0);
        }
        assert_int_equal(f.store.n_writes > 0, addresses != ALWAYS);
        assert_int_equal(cl_storage_cell_bytes(&f.storage),
                         HEADS * SIZE * 4 + HEADS * SIZE * 2 + SIZE * 4);
        finish(&f);
    }
}

static void f32_rows_with_an_address_are_handed_out_in_place(void **state)
{
    (void)state;
    fixture f;
    start(&f, ALWAYS, 3);
    for (uint32_t kind = 0; kind < N_ROWS; kind++) {
        const float *row = cl_storage_read(&f.storage, &f.rows[kind], &f.kernels, 0, 40, 3,
                                           f.scratch, f.raw);
        assert_int_equal(row == f.scratch, f.rows[kind].type != CELLAR_F32);
    }
    finish(&f);
}

static void quantised_rows_are_what_their_codec_makes_of_them(void **state)
{
    (void)state;
    static const cellar_type types[] = {CELLAR_Q4_0, CELLAR_Q4_1,   CELLAR_Q5_0, CELLAR_Q5_1,
                                        CELLAR_Q8_0, CELLAR_IQ4_NL, CELLAR_F16};
    fixture f;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (addressing addresses = ALWAYS; addresses <= NEVER; addresses++) {
            float row[SIZE], expected[SIZE];
            unsigned char bytes[SIZE * 2];
            describe(&f, addresses, types[t]);
            assert_int_equal(create(&f, 2, NULL), CELLAR_OK);
            for (uint32_t i = 0; i < SIZE; i++)
                row[i] = sinf((float)i * 0.7f) * 3;
            f.kernels.codec[types[t]].encode(bytes, row, SIZE);
            f.kernels.codec[types[t]].decode(expected, bytes, SIZE);
            assert_true(cl_storage_write(&f.storage, &f.rows[1], &f.kernels, 1, 33, row, f.raw));
            const float *out = cl_storage_read(&f.storage, &f.rows[1], &f.kernels, 1, 33, 1,
                                               f.scratch, f.raw);
            assert_memory_equal(out, expected, sizeof expected);
            finish(&f);
        }
}

static void growing_and_shrinking_moves_no_row(void **state)
{
    static const uint32_t sizes[] = {200, 201, 400, 150, 150, 1, 33, 128, 260};
    (void)state;
    fixture f;
    for (addressing addresses = ALWAYS; addresses <= SOMETIMES; addresses++) {
        start(&f, addresses, 130);
        uint32_t n_written = 0; /* cells from 0 on that hold what was written */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (; n_written < f.storage.n_blocks * CL_BLOCK; n_written++)
                assert_true(write_cell(&f, n_written, 1));
            const unsigned char *first = cl_storage_row(&f.storage, &f.rows[0], 0, 0);
            assert_int_equal(cl_storage_resize(&f.storage, sizes[s], NULL), CELLAR_OK);
            assert_true(f.storage.n_blocks >= sizes[s] && f.storage.n_blocks - sizes[s] < 2);
            assert_ptr_equal(cl_storage_row(&f.storage, &f.rows[0], 0, 0), first);
            if (n_written > f.storage.n_blocks * CL_BLOCK)
                n_written = f.storage.n_blocks * CL_BLOCK;
            for (uint32_t cell = 0; cell < n_written; cell += CL_BLOCK)
                check_cells(&f, cell, CL_BLOCK, cell, 1);
        }
        finish(&f);
    }
}

static void copying_cells_copies_all_their_rows(void **state)
{
    (void)state;
    fixture f;
    for (addressing addresses = ALWAYS; addresses <= SOMETIMES; addresses++)
        for (uint32_t n = 1; n <= 97; n += 3) { /* beyond, they overlap */
            uint32_t from = 7 + n, to = 300 - n;
            start(&f, addresses, 12);
            for (uint32_t cell = 0; cell < 12 * CL_BLOCK; cell++)
                assert_true(write_cell(&f, cell, 2));
            assert_true(cl_storage_copy(&f.storage, to, from, n));
            for (uint32_t cell = 0; cell < 12 * CL_BLOCK; cell++) {
                bool is_copied = cell >= to && cell < to + n;
                check_cells(&f, cell, 1, is_copied ? from + (cell - to) : cell, 2);
            }
            finish(&f);
        }
}

static void a_group_without_rows_asks_for_nothing(void **state)
{
    (void)state;
    fixture f;
    size_t own, callers;
    describe(&f, NEVER, CELLAR_F16);
    memset(f.layout.block_bytes, 0, sizeof f.layout.block_bytes);
    assert_true(cl_storage_measure(&f.layout, 2, 1000, &own, &callers));
    assert_int_equal(own + callers, 0);
    assert_int_equal(
        cl_storage_create(&f.storage, &f.layout, NULL, 0, f.stores, 2, 1000, &f.alloc, NULL),
        CELLAR_OK);
    assert_int_equal(f.storage.n_blocks, cl_storage_round(1000));
    assert_int_equal(cl_storage_resize(&f.storage, 2000, NULL), CELLAR_OK);
    assert_true(f.storage.n_blocks >= 2000);
    assert_int_equal(cl_storage_cell_bytes(&f.storage), 0);
    assert_true(cl_storage_copy(&f.storage, 0, 100, 50));
    assert_int_equal(f.store.calls, 0);
    finish(&f);
}

static void a_state_is_a_block_of_one_cell(void **state)
{
    (void)state;
    fixture f;
    cl_rows tensors[2];
    describe(&f, ALWAYS, CELLAR_F16);
    cl_storage_layout layout = {.cells_a_block = 1, .kind = CELLAR_BYTES_STATES};
    assert_true(cl_storage_add(&layout, &tensors[0], 1, 7, CELLAR_F32, 0));
    assert_true(cl_storage_add(&layout, &tensors[1], 1, 100, CELLAR_F32, 0));
    assert_int_equal(cl_storage_create(&f.storage, &layout, tensors, 2, NULL, 1, 5, &f.alloc, NULL),
                     CELLAR_OK);
    assert_true(f.alloc.bytes[CELLAR_BYTES_STATES] > 5 * 107 * 4);
    for (uint32_t s = 0; s < 5; s++)
        for (uint32_t i = 0; i < 100; i++)
            ((float *)(void *)cl_storage_row(&f.storage, &tensors[1], 0, s))[i] =
                (float)(100 * s + i);
    assert_true(cl_storage_copy(&f.storage, 0, 3, 2));
    for (uint32_t s = 0; s < 5; s++) {
        const float *row = (const float *)(void *)cl_storage_row(&f.storage, &tensors[1], 0, s);
        for (uint32_t i = 0; i < 100; i++)
            assert_true(row[i] == (float)(100 * (s < 2 ? s + 3 : s) + i));
    }
    cl_storage_destroy(&f.storage);
    assert_int_equal(f.alloc.bytes[CELLAR_BYTES_STATES], 0);
}

static void a_store_that_gives_no_buffer_leaves_everything_as_it_was(void **state)
{
    (void)state;
    fixture f;
    cellar_error error;
    for (uint32_t n = 1; n <= 5; n++) {
        describe(&f, NEVER, CELLAR_F16);
        f.store.fail_at = n;
        assert_int_equal(create(&f, 5, &error), CELLAR_NO_MEMORY);
        assert_int_equal(error.reason, CELLAR_REASON_STORE);
        nothing_is_held(&f);
    }
    for (uint32_t n = 1; n <= 7; n++) {
        start(&f, NEVER, 5);
        for (uint32_t cell = 0; cell < 5 * CL_BLOCK; cell++)
            assert_true(write_cell(&f, cell, 3));
        cl_storage before = f.storage;
        uint64_t own = f.alloc.bytes[CELLAR_BYTES_ROWS];
        size_t callers = f.store.bytes;
        f.store.calls = 0;
        f.store.fail_at = n;
        assert_int_equal(cl_storage_resize(&f.storage, 12, &error), CELLAR_NO_MEMORY);
        assert_memory_equal(&before, &f.storage, sizeof before);
        assert_int_equal(f.alloc.bytes[CELLAR_BYTES_ROWS], own);
        assert_int_equal(f.store.bytes, callers);
        for (uint32_t cell = 0; cell < 5 * CL_BLOCK; cell += CL_BLOCK)
            check_cells(&f, cell, CL_BLOCK, cell, 3);
        f.store.fail_at = 0;
        assert_int_equal(cl_storage_resize(&f.storage, 12, &error), CELLAR_OK);
        finish(&f);
    }
}

static void a_budget_holds_for_all_stores(void **state)
{
    (void)state;
    fixture f;
    cellar_error error;
    size_t own, callers;
    describe(&f, NEVER, CELLAR_F16);
    assert_true(cl_storage_measure(&f.layout, 2, 5, &own, &callers));
    for (uint64_t missing = 0; missing < own + callers; missing += 1 + missing * 3) {
        describe(&f, NEVER, CELLAR_F16);
        f.alloc.limit = own + callers - missing;
        if (missing == 0) {
            assert_int_equal(create(&f, 5, &error), CELLAR_OK);
            assert_int_equal(cl_storage_resize(&f.storage, 6, &error), CELLAR_NO_MEMORY);
            assert_int_equal(f.storage.n_blocks, 5);
            finish(&f);
        } else {
            assert_int_equal(create(&f, 5, &error), CELLAR_NO_MEMORY);
            nothing_is_held(&f);
        }
        assert_int_equal(error.reason, CELLAR_REASON_BUDGET);
    }
}

static void a_store_that_fails_is_heard(void **state)
{
    (void)state;
    fixture f;
    start(&f, NEVER, 5);
    for (uint32_t cell = 0; cell < 64; cell++)
        assert_true(write_cell(&f, cell, 4));
    for (uint32_t n = 1; n <= 4; n++) {
        bool is_heard = n <= 3; /* three rows of a cell go to this store */
        f.store.calls = 0;
        f.store.fail_at = n;
        assert_int_equal(write_cell(&f, 3, 4), !is_heard);
        f.store.calls = 0;
        assert_int_equal(cl_storage_copy(&f.storage, 100, 4, 5), !is_heard);
    }
    for (uint32_t kind = 1; kind < N_ROWS; kind++) {
        f.store.calls = 0;
        f.store.fail_at = 1;
        assert_null(
            cl_storage_read(&f.storage, &f.rows[kind], &f.kernels, 0, 9, 4, f.scratch, f.raw));
    }
    f.store.fail_at = 0;
    check_cells(&f, 4, 20, 4, 4);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_public_sizes_are_those_of_the_kernels),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(chunks_are_few_and_whole),
        cmocka_unit_test(rows_come_out_as_they_went_in),
        cmocka_unit_test(f32_rows_with_an_address_are_handed_out_in_place),
        cmocka_unit_test(quantised_rows_are_what_their_codec_makes_of_them),
        cmocka_unit_test(growing_and_shrinking_moves_no_row),
        cmocka_unit_test(copying_cells_copies_all_their_rows),
        cmocka_unit_test(a_group_without_rows_asks_for_nothing),
        cmocka_unit_test(a_state_is_a_block_of_one_cell),
        cmocka_unit_test(a_store_that_gives_no_buffer_leaves_everything_as_it_was),
        cmocka_unit_test(a_budget_holds_for_all_stores),
        cmocka_unit_test(a_store_that_fails_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
