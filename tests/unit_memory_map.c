/*
 * unit_memory_map.c: what /memory says, against what the memory and the answers say themselves.
 *
 * Cells are counted again here, cell by cell, from cellar_visit_cells and cellar_visit_runs; prompts are held against the
 * reports that came with their answers. With keys nobody is told of another's but that cells are in use. The page's own
 * files are asked for as well: what they may do is said in their heads.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/memory_map.h"
#include "support_http.h"

#define FIRST "Authorization: Bearer first\r\n"
#define SECOND "Authorization: Bearer second\r\n"

/* ---- asking --------------------------------------------------------------------------------- */

static http_answer complete(const served *its, const char *key, const char *prompt, int n)
{
    char body[2048];
    snprintf(body, sizeof body,
             "{\"prompt\":\"%s\",\"n_predict\":%d,\"ignore_eos\":true,\"temperature\":0}", prompt,
             n);
    http_answer a = http_ask(its, "POST", "/completion", key, body);
    assert_int_equal(a.status, 200);
    return a;
}

static http_answer look_at(const served *its, const char *key)
{
    http_answer a = http_ask(its, "GET", "/memory", key, NULL);
    assert_int_equal(a.status, 200);
    assert_non_null(a.json);
    return a;
}

/* Number i of a row. */
static json_int_t at(const json_t *row, size_t i)
{
    return json_integer_value(json_array_get(row, i));
}

/* ---- cells, counted again ------------------------------------------------------------------- */

#define MOST_CELLS 32768u

typedef struct recount {
    served *its;
    uint32_t held[MOST_CELLS]; /* sequences that hold each cell */
    bool is_used[MOST_CELLS];
    uint32_t n_used, n_shared;
} recount;

static bool recount_run(void *context, const cellar_run *run)
{
    recount *c = context;
    for (uint32_t i = 0; run->group == 0 && i < run->len; i++) {
        c->held[run->cell + i]++;
    }
    return true;
}

static bool recount_cell(void *context, const cellar_cell *cell)
{
    recount *c = context;
    if (cell->group == 0) {
        c->is_used[cell->cell] = true;
        c->n_used++;
        c->n_shared += c->held[cell->cell] > 1;
    }
    return true;
}

static void recount_now(void *context)
{
    recount *c = context;
    const cellar_memory *memory = engine_memory(c->its->engine);
    assert_int_equal(cellar_visit_runs(memory, -1, recount_run, c, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_cells(memory, recount_cell, c, NULL), CELLAR_OK);
}

/* Hold the map of the first group against the cells. */
static void compare_cells(served *its, const json_t *memory)
{
    recount *c = calloc(1, sizeof *c);
    c->its = its;
    assert_true(scheduler_run(its->server.scheduler, recount_now, c));
    const json_t *map = json_at(memory, "groups.0.map");
    const json_int_t per_tile = json_number_at(memory, "groups.0.cells_per_tile"),
                     n_tiles = json_number_at(memory, "groups.0.tiles"),
                     n_cells = json_number_at(memory, "groups.0.shown");
    assert_true(n_cells <= json_number_at(memory, "groups.0.cells"));
    assert_true(n_tiles <= (json_int_t)MEMORY_MAP_TILES / 2);
    assert_true(n_tiles * per_tile >= n_cells && (n_tiles - 1) * per_tile < n_cells);
    json_int_t n_used = 0, n_shared = 0, n_listed = 0;
    size_t i;
    json_t *row;
    json_array_foreach(map, i, row) {
        for (json_int_t tile = at(row, 0); tile < at(row, 0) + at(row, 1); tile++) {
            json_int_t used = 0, shared = 0, most = 0;
            for (json_int_t k = tile * per_tile; k < (tile + 1) * per_tile && k < n_cells; k++) {
                used += c->is_used[k];
                shared += c->is_used[k] && c->held[k] > 1;
                most = c->is_used[k] && c->held[k] > most ? c->held[k] : most;
            }
            assert_int_equal(at(row, 4), used);
            assert_int_equal(at(row, 5), shared);
            assert_int_equal(at(row, 7), most);
            n_used += used;
            n_shared += shared;
            n_listed++;
        }
    }
    assert_true(n_listed <= n_tiles);
    assert_int_equal(n_used, c->n_used);
    assert_int_equal(n_shared, c->n_shared);
    assert_int_equal(json_number_at(memory, "cells.used"), c->n_used);
    assert_int_equal(json_number_at(memory, "cells.shared"), c->n_shared);
    free(c);
}

/* Every run of a sequence lies in tiles that are in use, and they are as many cells as it says. */
static void compare_runs(const json_t *memory)
{
    size_t i, j;
    json_t *its, *run;
    json_array_foreach(json_at(memory, "sequences"), i, its) {
        json_int_t n = 0;
        json_array_foreach(json_object_get(its, "runs"), j, run) {
            n += at(run, 2);
        }
        assert_int_equal(n, json_number_at(its, "cells"));
        assert_int_equal(json_number_at(its, "tokens"), json_number_at(its, "positions.1") + 1);
    }
}

static void cells_are_those_of_the_memory(void **state)
{
    (void)state;
    /* a tile for each cell; for each of the first ones; a prompt that reaches further than there are tiles */
    static const uint32_t sizes[] = {1024, 20000, 6000};
    for (size_t i = 0; i < 3; i++) {
        served its;
        served_options options = served_defaults();
        options.n_cells = sizes[i];
        served_start(&its, &options);
        http_answer a = look_at(&its, NULL);
        assert_int_equal(json_array_size(json_at(a.json, "sequences")), 0);
        assert_int_equal(json_array_size(json_at(a.json, "groups.0.map")), 0);
        assert_int_equal(json_number_at(a.json, "cells.total"), sizes[i]);
        http_forget(&a);
        if (i == 2) {
            char long_prompt[9000] = "{\"n_predict\":1,\"prompt\":[7";
            for (size_t n = strlen(long_prompt); n < 8600; n += 2) {
                memcpy(long_prompt + n, ",9", 3);
            }
            strcat(long_prompt, "]}");
            a = http_ask(&its, "POST", "/completion", NULL, long_prompt);
            assert_int_equal(a.status, 200);
            http_forget(&a);
            a = look_at(&its, NULL);
            compare_cells(&its, a.json);
            assert_true(json_number_at(a.json, "groups.0.cells_per_tile") > 1);
            http_forget(&a);
        }
        static const char *const ends[] = {"a fox", "a crow", "a boat on the river"};
        for (size_t k = 0; k < 3; k++) {
            char prompt[200];
            snprintf(prompt, sizeof prompt, "Once upon a time, in a village by the sea, lived %s",
                     ends[k]);
            a = complete(&its, NULL, prompt, 20);
            http_forget(&a);
            a = look_at(&its, NULL);
            compare_cells(&its, a.json);
            compare_runs(a.json);
            assert_int_equal(json_array_size(json_at(a.json, "sequences")), k + 1 + (i == 2));
            assert_true(k == 0 || json_number_at(a.json, "cells.shared") > 5);
            http_forget(&a);
        }
        served_stop(&its);
    }
}

/* ---- prompts -------------------------------------------------------------------------------- */

static void prompts_are_told_as_their_answers_told(void **state)
{
    (void)state;
    served its;
    const served_options options = served_defaults();
    served_start(&its, &options);
    /* a beginning, what goes on from there, the first again, another beginning */
    char first[300] = "Once upon a time there was a hare", second[2000];
    http_answer answers[4];
    answers[0] = complete(&its, NULL, first, 12);
    char *said = json_dumps(json_at(answers[0].json, "content"), JSON_ENCODE_ANY);
    snprintf(second, sizeof second, "%s%.*s And then", first, (int)strlen(said) - 2, said + 1);
    free(said);
    answers[1] = complete(&its, NULL, second, 12);
    answers[2] = complete(&its, NULL, first, 12);
    answers[3] = complete(&its, NULL, "The weather", 12);
    http_answer a = look_at(&its, NULL);
    assert_int_equal(json_array_size(json_at(a.json, "events")), 4);
    for (size_t i = 0; i < 4; i++) { /* the newest first */
        char place[40];
        snprintf(place, sizeof place, "events.%zu", 3 - i);
        const json_t *event = json_at(a.json, place), *report = json_at(answers[i].json, "cellar");
        assert_int_equal(json_number_at(event, "number"), i + 1);
        assert_string_equal(json_text_at(event, "state"), "length");
        static const char *const same[] = {"reusable", "reused", "conversation", "set_aside",
                                           "id_slot"};
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(json_number_at(event, same[k]), json_number_at(report, same[k]));
        }
        assert_string_equal(json_text_at(event, "reason"), json_text_at(report, "reason"));
        assert_string_equal(json_text_at(event, "source"), json_text_at(report, "source"));
        assert_int_equal(json_number_at(event, "prompt_tokens"),
                         json_number_at(answers[i].json, "timings.cache_n") +
                             json_number_at(answers[i].json, "timings.prompt_n"));
        assert_int_equal(json_number_at(event, "written"), 12);
    }
    /* the second goes on with the first; who begins otherwise begins a conversation */
    assert_int_equal(json_number_at(answers[0].json, "cellar.conversation"), 1);
    assert_int_equal(json_number_at(answers[1].json, "cellar.conversation"), 1);
    assert_int_equal(json_number_at(answers[3].json, "cellar.conversation"), 3);
    for (size_t i = 0; i < 4; i++) {
        http_forget(&answers[i]);
    }
    http_forget(&a);
    served_stop(&its);
}

static void only_the_last_prompts_are_kept(void **state)
{
    (void)state;
    timeline *h = timeline_create();
    timeline_event *events = calloc(TIMELINE_EVENTS + 1, sizeof *events);
    job_report report = {.finish = JOB_GOES_ON};
    assert_int_equal(timeline_copy(h, NULL, events, 10), 0);
    for (uint64_t i = 1; i <= 3 * TIMELINE_EVENTS; i++) {
        report.n_reused = i;
        assert_int_equal(timeline_begin(h, i % 4 == 0 ? "b" : "a", 7, &report), i);
    }
    const size_t n = timeline_copy(h, NULL, events, TIMELINE_EVENTS + 1);
    assert_true(n >= TIMELINE_EVENTS - 1 && n <= TIMELINE_EVENTS);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(events[i].number, 3 * TIMELINE_EVENTS - i);
        assert_int_equal(events[i].report.n_reused, events[i].number);
    }
    assert_int_equal(timeline_copy(h, "b", events, 5), 5);
    assert_int_equal(events[1].number, 3 * TIMELINE_EVENTS - 4);
    /* what has made room is not written over what is there now */
    report.finish = JOB_LIMIT;
    report.stop = "x";
    timeline_end(h, 2 * TIMELINE_EVENTS, &report);
    timeline_end(h, 0, &report);
    assert_int_equal(timeline_copy(h, NULL, events, 1), 1);
    assert_false(events[0].has_ended);
    timeline_end(h, 3 * TIMELINE_EVENTS, &report);
    assert_int_equal(timeline_copy(h, NULL, events, 1), 1);
    assert_true(events[0].has_ended && events[0].report.stop == NULL);
    char name[TIMELINE_OWNER_BYTES + 1];
    memset(name, 'n', TIMELINE_OWNER_BYTES);
    name[TIMELINE_OWNER_BYTES] = '\0';
    assert_int_equal(timeline_begin(h, name, 7, &report), 0);
    free(events);
    timeline_destroy(h);
}

/* ---- others --------------------------------------------------------------------------------- */

static void of_others_only_cells_are_seen(void **state)
{
    (void)state;
    served its;
    served_options options = served_defaults();
    options.has_keys = true;
    served_start(&its, &options);
    http_answer a = http_ask(&its, "GET", "/memory", NULL, NULL);
    assert_int_equal(a.status, 401);
    http_forget(&a);
    a = complete(&its, FIRST, "The password of the first is swordfish, and", 16);
    http_forget(&a);
    a = look_at(&its, FIRST);
    assert_int_equal(json_array_size(json_at(a.json, "sequences")), 1);
    assert_int_equal(json_array_size(json_at(a.json, "events")), 1);
    const json_int_t n = json_number_at(a.json, "cells.used");
    assert_null(strstr(a.body, "swordfish"));
    http_forget(&a);
    a = look_at(&its, SECOND);
    compare_cells(&its, a.json);
    assert_int_equal(json_array_size(json_at(a.json, "sequences")), 0);
    assert_int_equal(json_array_size(json_at(a.json, "events")), 0);
    assert_int_equal(json_number_at(a.json, "n_sequences"), 0);
    assert_int_equal(json_number_at(a.json, "cells.used"), n);
    size_t i;
    json_t *row;
    json_array_foreach(json_at(a.json, "groups.0.map"), i, row) {
        assert_int_equal(at(row, 2), MEMORY_MAP_OTHERS);
        assert_int_equal(at(row, 3), -1); /* no position */
    }
    http_forget(&a);
    served_stop(&its);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void the_page_may_load_nothing_from_elsewhere(void **state)
{
    (void)state;
    static const char *const files[][2] = {{"/", "text/html"},
                                           {"/page.css", "text/css"},
                                           {"/page.js", "text/javascript"},
                                           {"/page.svg", "image/svg+xml"}};
    served its;
    served_options options = served_defaults();
    options.has_keys = true; /* none is asked for here */
    served_start(&its, &options);
    for (size_t i = 0; i < 4; i++) {
        http_answer a = http_ask(&its, "GET", files[i][0], NULL, NULL);
        assert_int_equal(a.status, 200);
        assert_true(a.n_body > 100);
        assert_non_null(strstr(a.head, files[i][1]));
        const char *policy = strstr(a.head, "Content-Security-Policy: ");
        assert_non_null(policy);
        assert_non_null(strstr(policy, "default-src 'none'"));
        assert_null(strstr(policy, "unsafe"));
        assert_null(strstr(policy, "http:"));
        assert_non_null(strstr(a.head, "X-Content-Type-Options: nosniff"));
        /* no markup from texts, and no address of anybody */
        static const char *const never[] = {"innerHTML",      "outerHTML", "insertAdjacentHTML",
                                            "document.write", "eval(",     "https://"};
        for (size_t k = 0; k < sizeof never / sizeof never[0]; k++) {
            assert_null(strstr(a.body, never[k]));
        }
        http_forget(&a);
    }
    served_stop(&its);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_those_of_the_memory),
        cmocka_unit_test(prompts_are_told_as_their_answers_told),
        cmocka_unit_test(only_the_last_prompts_are_kept),
        cmocka_unit_test(of_others_only_cells_are_seen),
        cmocka_unit_test(the_page_may_load_nothing_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
