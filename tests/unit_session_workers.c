/*
 * unit_session_workers.c: loading by several threads does what loading by one does.
 *
 * Sessions of several sections, so that there is something to share out. What is loaded is written again
 * and compared byte by byte; a damaged session names the first damaged section, whoever met it first;
 * readers and stores of the caller are not called by several threads at once. Real threads, so that a
 * thread sanitizer has something to look at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/threads.h"
#include "model/drive.h"
#include "support_faulty.h"
#include "support_session.h"

enum { STEP = 128, TOKENS = 4300, WINDOW = 300, THREADS = 3 };

static threads *pool;
static uint32_t n_jobs; /* that were given to it */

static void run_job(void *context, cellar_task task, void *argument)
{
    n_jobs++;
    threads_run(context, task, argument);
}

static int start_threads(void **state)
{
    (void)state;
    return threads_create(THREADS, &pool, NULL) == CELLAR_OK ? 0 : -1;
}

static int stop_threads(void **state)
{
    (void)state;
    threads_destroy(pool);
    return 0;
}

/* n: workers; kinds of rows may differ from memory to memory. */
static void open_memory(drive *d, uint32_t n, cellar_type type, const cellar_row_store *store)
{
    cellar_config config = cellar_config_init();
    memset(d, 0, sizeof *d);
    d->seed = 5;
    d->n_layers = 2;
    for (uint32_t l = 0; l < 2; l++) {
        d->layers[l] = drive_layer(4, 4, 32, 32);
        d->layers[l].k_type = d->layers[l].v_type = type;
        d->layers[l].store = store;
    }
    d->layers[1].window = (cellar_window){CELLAR_WINDOW_STANDARD, WINDOW, 0};
    config.n_cells = 2 * TOKENS;
    config.n_ubatch = STEP;
    config.n_sequences = 2;
    config.workers = (cellar_workers){n, run_job, pool};
    cellar_error error = {.message = ""};
    if (drive_open(d, &config, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

/* A sequence, and a fork of its first part that went on alone. */
static void save(parcel *to)
{
    drive d;
    cellar_error error = {.message = ""};
    open_memory(&d, 1, CELLAR_F32, NULL);
    for (cellar_token t = 0; t < TOKENS; t += 100)
        assert_int_equal(drive_append(&d, 0, t, 100, NULL), CELLAR_OK);
    assert_int_equal(cellar_copy(d.memory, 0, 7, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 7, 50000, 100, NULL), CELLAR_OK);
    if (parcel_write(to, d.memory, NULL, &error) != CELLAR_OK) fail_msg("%s", error.message);
    drive_close(&d);
}

static cellar_status load(drive *d, const parcel *file, cellar_error *error)
{
    const cellar_load_options options = cellar_load_options_init();
    cellar_session *session;
    cellar_status status = cellar_open_session_bytes(file->bytes, file->size, NULL, &session,
                                                     error);
    if (status != CELLAR_OK) fail_msg("%s", error->message);
    status = cellar_load_session(d->memory, session, &options, error);
    cellar_close_session(session);
    return status;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void what_they_load_is_the_same(void **state)
{
    (void)state;
    static const cellar_type types[] = {CELLAR_F32, CELLAR_F16, CELLAR_Q8_0};
    parcel file = {NULL, 0, 0};
    save(&file);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        parcel loaded[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
        for (uint32_t i = 0; i < 2; i++) {
            drive d;
            cellar_error error = {.message = ""};
            open_memory(&d, i == 0 ? 1 : THREADS, types[t], NULL);
            n_jobs = 0;
            if (load(&d, &file, &error) != CELLAR_OK) fail_msg("%s", error.message);
            assert_int_equal(n_jobs > 0, i > 0);
            assert_int_equal(cellar_check(d.memory, NULL), CELLAR_OK);
            assert_int_equal(parcel_write(&loaded[i], d.memory, NULL, NULL), CELLAR_OK);
            drive_close(&d);
        }
        assert_true(parcel_equal(&loaded[0], &loaded[1]));
        if (types[t] == CELLAR_F32) assert_true(parcel_equal(&loaded[1], &file));
        parcel_free(&loaded[0]);
        parcel_free(&loaded[1]);
    }
    parcel_free(&file);
}

/* Sections of rows. */
static uint32_t find_rows(const parcel *file, cl_session_entry *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parcel_entries(file) && n < most; i++) {
        const cl_session_entry entry = parcel_entry(file, i, NULL);
        if (entry.kind == CL_SESSION_ROWS && entry.part == 0) out[n++] = entry;
    }
    return n;
}

static void the_first_damaged_section_is_named(void **state)
{
    (void)state;
    parcel file = {NULL, 0, 0};
    cl_session_entry rows[16];
    save(&file);
    const uint32_t n = find_rows(&file, rows, 16);
    assert_true(n > THREADS);
    for (uint32_t i = 0; i < n; i++) { /* from the last to the first: the first is named */
        const cl_session_entry *entry = &rows[n - 1 - i];
        drive d;
        cellar_error error = {.message = ""};
        file.bytes[entry->offset + entry->length / 2] ^= 4;
        open_memory(&d, THREADS, CELLAR_F32, NULL);
        assert_int_equal(drive_append(&d, 7, 1, 50, NULL), CELLAR_OK);
        assert_int_equal(load(&d, &file, &error), CELLAR_CORRUPT);
        assert_true(error.at == (int64_t)entry->offset);
        assert_int_equal(cellar_check(d.memory, NULL), CELLAR_OK);
        cellar_sequence_info info;
        assert_int_equal(cellar_get_sequence(d.memory, 0, &info, NULL), CELLAR_OK);
        assert_int_equal(info.pos_max, -1);
        drive_close(&d);
    }
    parcel_free(&file);
}

/* A reader that notices when it is called twice at once, and that counts. */
typedef struct lonely {
    const parcel *file;
    atomic_int n_inside, n_worst;
} lonely;

static bool read_alone(void *context, uint64_t offset, void *to, size_t size)
{
    lonely *l = context;
    const int n = atomic_fetch_add(&l->n_inside, 1) + 1;
    if (n > atomic_load(&l->n_worst)) atomic_store(&l->n_worst, n);
    for (volatile int i = 0; i < 100000; i++) { /* long enough to be met */
    }
    memcpy(to, l->file->bytes + offset, size);
    atomic_fetch_sub(&l->n_inside, 1);
    return true;
}

static void a_reader_is_called_by_one_at_a_time(void **state)
{
    (void)state;
    parcel file = {NULL, 0, 0}, loaded = {NULL, 0, 0};
    const cellar_load_options options = cellar_load_options_init();
    cellar_session *session;
    drive d;
    save(&file);
    lonely l = {.file = &file};
    const cellar_reader reader = {.read = read_alone, .size = file.size, .context = &l};
    open_memory(&d, THREADS, CELLAR_F32, NULL);
    assert_int_equal(cellar_open_session_reader(&reader, NULL, &session, NULL), CELLAR_OK);
    assert_int_equal(cellar_load_session(d.memory, session, &options, NULL), CELLAR_OK);
    cellar_close_session(session);
    assert_int_equal(atomic_load(&l.n_worst), 1);
    assert_int_equal(parcel_write(&loaded, d.memory, NULL, NULL), CELLAR_OK);
    assert_true(parcel_equal(&loaded, &file));
    drive_close(&d);
    parcel_free(&loaded);
    parcel_free(&file);
}

static void a_store_that_fails_is_reported(void **state)
{
    (void)state;
    parcel file = {NULL, 0, 0}, loaded = {NULL, 0, 0};
    const cellar_row_store store = faulty_store();
    cellar_error error = {.message = ""};
    drive d;
    save(&file);
    open_memory(&d, THREADS, CELLAR_F32, &store);
    faulty_store_calls_left = 40;
    assert_int_equal(load(&d, &file, &error), CELLAR_IO);
    faulty_store_calls_left = -1;
    assert_int_equal(cellar_check(d.memory, NULL), CELLAR_OK);
    assert_int_equal(load(&d, &file, &error), CELLAR_OK);
    assert_int_equal(parcel_write(&loaded, d.memory, NULL, NULL), CELLAR_OK);
    assert_true(parcel_equal(&loaded, &file));
    drive_close(&d);
    parcel_free(&loaded);
    parcel_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_they_load_is_the_same),
        cmocka_unit_test(the_first_damaged_section_is_named),
        cmocka_unit_test(a_reader_is_called_by_one_at_a_time),
        cmocka_unit_test(a_store_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, start_threads, stop_threads);
}
