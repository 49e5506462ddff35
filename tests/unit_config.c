/*
 * unit_config.c: configurations that must be refused, as a table: what is done to a sound one, at
 * which layer the error must point (-1: at the configuration itself), and words that its message
 * must have. A second table has those that are just inside the limits and must be taken.
 *
 * Every way to hand in a configuration has to answer alike: cellar_create, cellar_measure and
 * cellar_visit_plan. The sound configuration has three layers of one shape, so that a single
 * change makes one of them wrong; that it is sound is the first test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cellar.h>

enum { LAYERS = 3 };

/* A configuration in the making, and what its fields may point to. */
typedef struct setup {
    cellar_config config;
    cellar_layer layer[LAYERS];
    float numbers[64];
    uint32_t counts[2];
    cellar_row_store store;
} setup;

static void *take(void *context, size_t size, size_t align)
{
    (void)context;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void give_back(void *context, void *block, size_t size)
{
    (void)context;
    (void)size;
    free(block);
}

static void *take_buffer(void *context, size_t size)
{
    return take(context, size, 64);
}

static void make_sound(setup *s)
{
    memset(s, 0, sizeof *s);
    s->config = cellar_config_init();
    s->config.n_layers = LAYERS;
    s->config.layers = s->layer;
    s->config.n_cells = 64;
    s->config.n_ubatch = 16;
    for (int i = 0; i < LAYERS; i++) {
        s->layer[i] = cellar_layer_init();
        s->layer[i].n_heads = 4;
        s->layer[i].n_kv_heads = 2;
        s->layer[i].k_size = s->layer[i].v_size = 64;
        s->layer[i].rope.kind = CELLAR_ROPE_NEOX;
    }
    for (int i = 0; i < 64; i++)
        s->numbers[i] = 1;
    s->store.allocate = take_buffer;
    s->store.release = give_back;
}

/* The three sections given, and nothing behind them; n_rot is the whole head. */
static void set_sections(cellar_layer *layer, uint32_t a, uint32_t b, uint32_t c, uint32_t rest)
{
    layer->rope.kind = CELLAR_ROPE_MROPE;
    layer->rope.sections[0] = a;
    layer->rope.sections[1] = b;
    layer->rope.sections[2] = c;
    layer->rope.sections[3] = rest;
}

static void set_buckets(setup *s, uint32_t layer, uint32_t n, uint32_t max_distance)
{
    s->layer[layer].buckets.n = n;
    s->layer[layer].buckets.max_distance = max_distance;
    s->layer[layer].buckets.bias = s->numbers;
}

static void make_recurrent(setup *s, uint32_t layer, uint32_t n_states, uint32_t size)
{
    s->layer[layer].kind = CELLAR_LAYER_RECURRENT;
    s->layer[layer].n_states = n_states;
    s->layer[layer].state_sizes = s->counts;
    s->counts[0] = s->counts[1] = size;
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* X(name, at, words, change): `l` are the layers of the setup s. */
#define BAD_CONFIGURATIONS(X)                                                                      \
    /* heads and types */                                                                          \
    X(k_no_block, 1, "k_size 40 multiple 32 q8_0", l[1].k_size = 40; l[1].k_type = CELLAR_Q8_0)    \
    X(k_half_block, 1, "k_size 80 multiple 32 q4_0", l[1].k_size = 80; l[1].k_type = CELLAR_Q4_0)  \
    X(v_no_block, 2, "v_size 48 multiple 32 iq4_nl", l[2].v_size = 48;                             \
      l[2].v_type = CELLAR_IQ4_NL)                                                                 \
    X(v_small, 0, "v_size 1 multiple 32 q5_1", l[0].v_size = 1; l[0].v_type = CELLAR_Q5_1)         \
    X(k_type_odd, 0, "k_type 9", l[0].k_type = (cellar_type)9)                                     \
    X(v_type_odd, 1, "v_type 31", l[1].v_type = (cellar_type)31)                                   \
    X(no_heads, 1, "n_heads 0", l[1].n_heads = 0)                                                  \
    X(no_kv_heads, 1, "n_kv_heads 0", l[1].n_kv_heads = 0)                                         \
    X(many_heads, 1, "n_heads 65538 65536", l[1].n_heads = 65538)                                  \
    X(uneven_heads, 2, "n_heads 4 multiple n_kv_heads 3", l[2].n_kv_heads = 3)                     \
    X(no_k, 0, "k_size 0", l[0].k_size = 0)                                                        \
    X(no_v, 0, "v_size 0", l[0].v_size = 0)                                                        \
    X(large_k, 0, "k_size 65600", l[0].k_size = 65600)                                             \
    X(no_init, 1, "struct_size cellar_layer_init", l[1].struct_size = 8)                           \
    X(kind, 1, "kind 7", l[1].kind = (cellar_layer_kind)7)                                         \
    /* features */                                                                                 \
    X(scale_nan, 0, "scale", l[0].scale = NAN)                                                     \
    X(softcap_negative, 1, "softcap -2", l[1].softcap = -2)                                        \
    X(softcap_infinite, 1, "softcap", l[1].softcap = INFINITY)                                     \
    X(alibi_negative, 2, "alibi_max_bias -8", l[2].alibi_max_bias = -8)                            \
    X(window_kind, 1, "window.kind 4", l[1].window.kind = (cellar_window_kind)4)                   \
    X(window_empty, 1, "window.size 0", l[1].window.kind = CELLAR_WINDOW_STANDARD)                 \
    X(window_large, 1, "window.size 1073741825", l[1].window.kind = CELLAR_WINDOW_CHUNKED;         \
      l[1].window.size = (1u << 30) + 1)                                                           \
    X(buckets_odd, 0, "buckets.n 7 even", set_buckets(s, 0, 7, 64))                                \
    X(buckets_many, 0, "buckets.n 4098 4096", set_buckets(s, 0, 4098, 8000))                       \
    X(buckets_near, 0, "buckets.max_distance 4", set_buckets(s, 0, 8, 4))                          \
    X(buckets_near_both, 0, "buckets.max_distance 1", set_buckets(s, 0, 6, 1);                     \
      l[0].buckets.is_bidirectional = true)                                                        \
    X(buckets_no_bias, 0, "buckets.bias", set_buckets(s, 0, 8, 16); l[0].buckets.bias = NULL)      \
    X(k_turned_v_in_k, 1, "v_in_k rotate_k", l[1].v_in_k = l[1].rotate_k = true; l[1].v_size = 32; \
      l[1].rope.first = l[1].rope.n_rot = 32)                                                      \
    X(v_above_k, 1, "v_in_k v_size 96 k_size 64", l[1].v_in_k = true; l[1].v_size = 96)            \
    X(v_rotates, 1, "v_in_k rope.first 0 32", l[1].v_in_k = true; l[1].v_size = 32;                \
      l[1].rope.n_rot = 32)                                                                        \
    /* rotation */                                                                                 \
    X(rope_kind, 1, "rope.kind 4", l[1].rope.kind = (cellar_rope_kind)4)                           \
    X(rope_odd, 1, "rope.n_rot 7 even", l[1].rope.n_rot = 7)                                       \
    X(rope_odd_head, 1, "n_rot 33 even", l[1].k_size = 33)                                         \
    X(rope_long, 1, "rope.n_rot 66 k_size 64", l[1].rope.n_rot = 66)                               \
    X(rope_behind, 1, "rope.first 34 n_rot 32 k_size 64", l[1].rope.first = 34;                    \
      l[1].rope.n_rot = 32)                                                                        \
    X(rope_far_behind, 1, "rope.first", l[1].rope.first = UINT32_MAX; l[1].rope.n_rot = 2)         \
    X(rope_whole_behind, 1, "rope.first 2", l[1].rope.first = 2)                                   \
    X(rope_base, 1, "rope.base 0", l[1].rope.base = 0)                                             \
    X(rope_base_nan, 1, "rope.base", l[1].rope.base = NAN)                                         \
    X(rope_scale, 1, "rope.scale", l[1].rope.scale = 1e10)                                         \
    X(rope_factors, 1, "rope.factors[5]", l[1].rope.factors = s->numbers; s->numbers[5] = 0)       \
    X(rope_factor_minus, 1, "rope.factors[5]", l[1].rope.factors = s->numbers;                     \
      s->numbers[5] = -INFINITY)                                                                   \
    X(yarn_ext, 1, "rope.yarn_ext 2", l[1].rope.yarn_ext = 2)                                      \
    X(yarn_attn, 1, "rope.yarn_attn", l[1].rope.yarn_attn = 0)                                     \
    X(yarn_context, 1, "rope.yarn_context", l[1].rope.yarn_ext = 1)                                \
    X(sections_short, 1, "rope.sections 31 32", set_sections(&l[1], 11, 10, 10, 0))                \
    X(sections_long, 1, "rope.sections 33 32", set_sections(&l[1], 11, 10, 10, 2))                 \
    X(sections_wrap, 1, "rope.sections", set_sections(&l[1], UINT32_MAX, 33, 0, 0))                \
    X(sections_none, 1, "rope.sections 0 32", set_sections(&l[1], 0, 0, 0, 0))                     \
    X(sections_part, 1, "rope.sections 32 16", set_sections(&l[1], 12, 10, 10, 0);                 \
      l[1].rope.n_rot = 32)                                                                        \
    /* reading another layer */                                                                    \
    X(reads_itself, 1, "reads_layer 1", l[1].reads_layer = 1)                                      \
    X(reads_nothing, 1, "reads_layer 3", l[1].reads_layer = 3)                                     \
    X(reads_minus_two, 1, "reads_layer -2", l[1].reads_layer = -2)                                 \
    X(reads_reader, 2, "reads_layer 1 no rows", l[1].reads_layer = 0; l[2].reads_layer = 1)        \
    X(reads_later_reader, 0, "reads_layer 1 no rows", l[0].reads_layer = 1; l[1].reads_layer = 2)  \
    X(reads_each_other, 0, "reads_layer 1", l[0].reads_layer = 1; l[1].reads_layer = 0)            \
    X(reads_recurrent, 1, "reads_layer 0", make_recurrent(s, 0, 1, 8); l[1].reads_layer = 0)       \
    X(reads_no_memory, 1, "reads_layer 0", l[0].kind = CELLAR_LAYER_NONE; l[1].reads_layer = 0)    \
    X(reads_other_k, 1, "layer 0 sizes", l[1].reads_layer = 0; l[1].k_size = 32)                   \
    X(reads_other_v, 1, "layer 0 sizes", l[1].reads_layer = 0; l[1].v_size = 32)                   \
    X(reads_other_heads, 1, "layer 0 heads", l[1].reads_layer = 0; l[1].n_kv_heads = 4)            \
    X(reads_turned, 1, "layer 0 rotations", l[1].reads_layer = 0; l[1].rotate_k = true)            \
    X(reads_other_rope, 1, "rope layer 0", l[1].reads_layer = 0;                                   \
      l[1].rope.kind = CELLAR_ROPE_NORMAL)                                                         \
    X(reads_other_base, 1, "rope layer 0", l[1].reads_layer = 0; l[1].rope.base = 5000)            \
    X(reads_other_first, 1, "rope layer 0", l[1].reads_layer = 0;                                  \
      l[0].rope.n_rot = l[1].rope.n_rot = 32; l[1].rope.first = 32)                                \
    X(reads_other_sections, 1, "rope layer 0", l[1].reads_layer = 0;                               \
      set_sections(&l[0], 12, 10, 10, 0); set_sections(&l[1], 10, 12, 10, 0))                      \
    X(reads_other_window, 1, "window layer 0", l[1].reads_layer = 0;                               \
      l[1].window.kind = CELLAR_WINDOW_STANDARD; l[1].window.size = 8)                             \
    X(reads_other_size, 1, "window layer 0", l[1].reads_layer = 0;                                 \
      l[0].window.kind = l[1].window.kind = CELLAR_WINDOW_CHUNKED; l[0].window.size = 8;           \
      l[1].window.size = 9)                                                                        \
    /* recurrent layers and stores */                                                              \
    X(no_states, 1, "n_states 0", make_recurrent(s, 1, 0, 8))                                      \
    X(many_states, 1, "n_states 65 64", make_recurrent(s, 1, 65, 8))                               \
    X(no_state_sizes, 1, "state_sizes", make_recurrent(s, 1, 2, 8); l[1].state_sizes = NULL)       \
    X(empty_state, 1, "state_sizes", make_recurrent(s, 1, 2, 0))                                   \
    X(mixed_recurrent, -1, "config.split recurrent EQUAL", make_recurrent(s, 1, 2, 8);             \
      s->config.split = CELLAR_SPLIT_SIMPLE)                                                       \
    X(half_a_store, 1, "store function", l[1].store = &s->store)                                   \
    X(recurrent_store, 1, "store attention", make_recurrent(s, 1, 1, 8); l[1].store = &s->store)   \
    X(external_store, 1, "store external", l[1].is_external = true; l[1].store = &s->store)        \
    /* the memory */                                                                               \
    X(config_no_init, -1, "struct_size cellar_config_init", s->config.struct_size = 0)             \
    X(no_layers, -1, "n_layers 0", s->config.n_layers = 0)                                         \
    X(layers_null, -1, "config.layers NULL", s->config.layers = NULL)                              \
    X(no_cells, -1, "n_cells 0", s->config.n_cells = 0)                                            \
    X(many_cells, -1, "n_cells 1073741825", s->config.n_cells = (1u << 30) + 1)                    \
    X(no_ubatch, -1, "n_ubatch 0", s->config.n_ubatch = 0)                                         \
    X(large_ubatch, -1, "n_ubatch 65537", s->config.n_ubatch = 65537)                              \
    X(split, -1, "config.split 4", s->config.split = (cellar_split)4)                              \
    X(no_pools, -1, "n_pools 0", s->config.n_pools = 0)                                            \
    X(many_pools, -1, "n_pools 65", s->config.n_pools = 65)                                        \
    X(pools_sum, -1, "pool_cells 63 64", s->config.n_pools = 2; s->config.pool_cells = s->counts;  \
      s->counts[0] = 31; s->counts[1] = 32)                                                        \
    X(pools_wrap, -1, "pool_cells", s->config.n_pools = 2; s->config.pool_cells = s->counts;       \
      s->counts[0] = UINT32_MAX; s->counts[1] = 65)                                                \
    X(no_sequences, -1, "n_sequences 0", s->config.n_sequences = 0)                                \
    X(many_sequences, -1, "n_sequences", s->config.n_sequences = (1u << 20) + 1)                   \
    X(threshold, -1, "compaction_threshold", s->config.compaction_threshold = 1.5f)                \
    X(threshold_nan, -1, "compaction_threshold", s->config.compaction_threshold = NAN)             \
    X(half_an_allocator, -1, "allocator release", s->config.allocator.allocate = take)             \
    X(other_half, -1, "allocator allocate", s->config.allocator.release = give_back)               \
    X(workers_idle, -1, "workers run", s->config.workers.n = 2)                                    \
    X(budget, -1, "budget", s->config.budget_bytes = 1000)

/* X(name, change): just inside the limits. */
#define GOOD_CONFIGURATIONS(X)                                                                     \
    X(k_blocks, l[1].k_size = 96; l[1].k_type = CELLAR_Q8_0)                                       \
    X(v_block, l[1].v_size = 32; l[1].v_type = CELLAR_IQ4_NL)                                      \
    X(v_unused_type, l[1].v_in_k = true; l[1].v_size = 20; l[1].v_type = CELLAR_Q8_0;              \
      l[1].rope.first = 20; l[1].rope.n_rot = 44)                                                  \
    X(odd_head_unturned, l[1].k_size = 33; l[1].rope.kind = CELLAR_ROPE_NONE)                      \
    X(window_of_one, l[1].window.kind = CELLAR_WINDOW_SYMMETRIC; l[1].window.size = 1)             \
    X(buckets_least, set_buckets(s, 0, 8, 5))                                                      \
    X(buckets_odd_halves, set_buckets(s, 0, 6, 2); l[0].buckets.is_bidirectional = true)           \
    X(buckets_one_a_side, set_buckets(s, 0, 2, 1); l[0].buckets.is_bidirectional = true)           \
    X(v_is_k, l[1].v_in_k = true; l[1].rope.kind = CELLAR_ROPE_NONE)                               \
    X(turned_odd_head, l[1].k_size = l[1].v_size = 7; l[1].rope.kind = CELLAR_ROPE_NONE;           \
      l[1].rotate_k = l[1].rotate_v = true)                                                        \
    X(rope_at_end, l[1].rope.first = 32; l[1].rope.n_rot = 32)                                     \
    X(sections_all, set_sections(&l[1], 11, 10, 10, 1))                                            \
    X(sections_one, set_sections(&l[1], 32, 0, 0, 0))                                              \
    X(reads_before, l[2].reads_layer = 0)                                                          \
    X(reads_behind, l[0].reads_layer = 2)                                                          \
    X(reads_with_other_heads, l[1].reads_layer = 0; l[1].n_heads = 8; l[1].softcap = 30)           \
    X(reads_whole_rope, l[1].reads_layer = 0; l[1].rope.n_rot = 64) /* 0 means the same */         \
    X(no_memory_layer, l[1].kind = CELLAR_LAYER_NONE; l[1].n_heads = 0)                            \
    X(states, make_recurrent(s, 1, 2, 1))                                                          \
    X(pools, s->config.n_pools = 2; s->config.pool_cells = s->counts; s->counts[0] = 1;            \
      s->counts[1] = 63)                                                                           \
    X(one_of_each, s->config.n_cells = 1; s->config.n_ubatch = 1)

#define CHANGE(name, at, words, ...)                                                               \
    static void bad_##name(setup *s, cellar_layer *l)                                              \
    {                                                                                              \
        (void)s;                                                                                   \
        (void)l;                                                                                   \
        __VA_ARGS__;                                                                               \
    }
BAD_CONFIGURATIONS(CHANGE)
#undef CHANGE
#define CHANGE(name, ...)                                                                          \
    static void good_##name(setup *s, cellar_layer *l)                                             \
    {                                                                                              \
        (void)s;                                                                                   \
        (void)l;                                                                                   \
        __VA_ARGS__;                                                                               \
    }
GOOD_CONFIGURATIONS(CHANGE)
#undef CHANGE

typedef struct table_line {
    const char *name;
    void (*change)(setup *s, cellar_layer *l);
    int64_t at;
    const char *words;
} table_line;

static const table_line bad_lines[] = {
#define LINE(name, at, words, ...) {#name, bad_##name, at, words},
    BAD_CONFIGURATIONS(LINE)
#undef LINE
};

static const table_line good_lines[] = {
#define LINE(name, ...) {#name, good_##name, 0, ""},
    GOOD_CONFIGURATIONS(LINE)
#undef LINE
};

/* ---- the tests ------------------------------------------------------------------------------- */

static bool count_item(void *context, const cellar_bytes *bytes)
{
    *(uint64_t *)context += bytes->bytes;
    return true;
}

/* The first word of the list that the message lacks, into `word`; false: none. */
static bool lacks_a_word(const char *message, const char *words, char *word, size_t size)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        snprintf(word, size, "%.*s", (int)n, words);
        if (!strstr(message, word)) return true;
        words += n + (words[n] == ' ');
    }
    return false;
}

/* Says what is wrong with a refusal, or returns NULL. */
static const char *judge(const table_line *line, cellar_status status, const cellar_error *error)
{
    static char text[400];
    char word[64], layer[32];
    const char *message = error->message;
    size_t length = strlen(message);
    snprintf(layer, sizeof layer, "layer %lld", (long long)line->at);
    if (status != CELLAR_INVALID || error->status != status)
        snprintf(text, sizeof text, "%s, not refused: %s", cellar_status_text(status), message);
    else if (error->at != line->at)
        snprintf(text, sizeof text, "points at %lld: %s", (long long)error->at, message);
    else if (line->at >= 0 && strncmp(message, layer, strlen(layer)) != 0)
        snprintf(text, sizeof text, "does not begin with its layer: %s", message);
    else if (lacks_a_word(message, line->words, word, sizeof word))
        snprintf(text, sizeof text, "does not say \"%s\": %s", word, message);
    else if (error->reason != CELLAR_REASON_ARGUMENT && error->reason != CELLAR_REASON_BUDGET)
        snprintf(text, sizeof text, "the reason is \"%s\"", cellar_reason_text(error->reason));
    else if (length == 0 || message[length - 1] == '.' || strchr(message, '\n'))
        snprintf(text, sizeof text, "the message is not one line: %s", message);
    else
        return NULL;
    return text;
}

static void the_sound_configuration_is_sound(void **state)
{
    setup s;
    cellar_memory *memory = NULL;
    cellar_error error = {0};
    (void)state;
    make_sound(&s);
    if (cellar_create(&s.config, &memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
    assert_non_null(memory);
    cellar_destroy(memory);
}

static void every_bad_configuration_is_refused_where_it_is_bad(void **state)
{
    uint32_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
        setup s;
        cellar_error error = {0};
        cellar_memory *memory = (cellar_memory *)(void *)&s;
        make_sound(&s);
        bad_lines[i].change(&s, s.layer);
        const char *wrong = judge(&bad_lines[i], cellar_create(&s.config, &memory, &error), &error);
        if (!wrong && memory) wrong = "a refused memory is not NULL";
        if (wrong) {
            print_error("%s: %s\n", bad_lines[i].name, wrong);
            n_wrong++;
        }
    }
    if (n_wrong > 0) fail_msg("%u of the table", n_wrong);
}

static void measuring_refuses_what_creating_refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
        setup s;
        cellar_error error = {0}, other = {0};
        cellar_memory *memory = NULL;
        cellar_sizes sizes;
        uint64_t total = 0;
        make_sound(&s);
        bad_lines[i].change(&s, s.layer);
        /* A plan may be looked at whatever the budget is. */
        if (s.config.budget_bytes > 0) continue;
        cellar_status status = cellar_create(&s.config, &memory, &error);
        cellar_destroy(memory);
        if (cellar_measure(&s.config, &sizes, &other) != status ||
            strcmp(error.message, other.message) != 0)
            fail_msg("%s: cellar_measure: %s", bad_lines[i].name, other.message);
        if (cellar_visit_plan(&s.config, count_item, &total, &other) != status ||
            strcmp(error.message, other.message) != 0)
            fail_msg("%s: cellar_visit_plan: %s", bad_lines[i].name, other.message);
    }
}

static void what_is_just_inside_the_limits_is_taken(void **state)
{
    uint32_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof good_lines / sizeof *good_lines; i++) {
        setup s;
        cellar_error error = {0};
        cellar_memory *memory = NULL;
        cellar_sizes sizes = {0};
        uint64_t total = 0;
        make_sound(&s);
        good_lines[i].change(&s, s.layer);
        if (cellar_create(&s.config, &memory, &error) != CELLAR_OK ||
            cellar_check(memory, &error) != CELLAR_OK ||
            cellar_measure(&s.config, &sizes, &error) != CELLAR_OK ||
            cellar_visit_plan(&s.config, count_item, &total, &error) != CELLAR_OK) {
            print_error("%s: %s\n", good_lines[i].name, error.message);
            n_wrong++;
        } else if (total != sizes.total) {
            print_error("%s: the plan adds up to %llu bytes, not %llu\n", good_lines[i].name,
                        (unsigned long long)total, (unsigned long long)sizes.total);
            n_wrong++;
        }
        cellar_destroy(memory);
    }
    if (n_wrong > 0) fail_msg("%u of the table", n_wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sound_configuration_is_sound),
        cmocka_unit_test(every_bad_configuration_is_refused_where_it_is_bad),
        cmocka_unit_test(measuring_refuses_what_creating_refuses),
        cmocka_unit_test(what_is_just_inside_the_limits_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
