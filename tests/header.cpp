/*
 * header.cpp: cellar.h alone, as strict C++11.
 *
 * A C++ engine includes the same header: it has to compile with -pedantic -Werror, the calls have C names, and
 * the structs are the same as in C. Goes once through making, filling, forking and destroying a memory.
 */
#include "cellar.h"

#include <cstdio>
#include <cstring>
#include <vector>

static int n_passed, n_failed;

static void expect(bool is_true, const char *what)
{
    if (is_true) {
        n_passed++;
    } else {
        n_failed++;
        std::printf("FAIL %s\n", what);
    }
}

static bool read_tokens(cellar_memory *memory, const std::vector<cellar_token> &tokens)
{
    const std::vector<float> rows(tokens.size() * 16, 0.25f);
    std::vector<float> out(rows.size());
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = static_cast<uint32_t>(tokens.size());
    batch.tokens = tokens.data();
    return cellar_begin(memory, &batch, nullptr) == CELLAR_OK &&
           cellar_store(memory, 0, 0, rows.data(), rows.data(), nullptr) == CELLAR_OK &&
           cellar_attend(memory, 0, 0, rows.data(), out.data(), nullptr) == CELLAR_OK &&
           cellar_commit(memory, nullptr) == CELLAR_OK;
}

int main()
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 2;
    layer.k_size = layer.v_size = 8;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 16;

    cellar_sizes sizes;
    expect(cellar_measure(&config, &sizes, nullptr) == CELLAR_OK && sizes.total > 0,
           "a configuration is measured");
    cellar_memory *memory = nullptr;
    cellar_error error;
    expect(cellar_create(&config, &memory, &error) == CELLAR_OK, "a memory is made");
    if (memory) {
        expect(read_tokens(memory, {1, 2, 3, 4}), "four tokens are read");
        expect(cellar_copy(memory, 0, 1, 0, -1, &error) == CELLAR_OK, "a sequence is forked");
        expect(cellar_position_max(memory, 1) == 3, "the fork ends where its origin does");
        expect(cellar_remove(memory, 1, 5, 4, &error) == CELLAR_INVALID && error.status == CELLAR_INVALID,
               "a bad range is refused");
        cellar_destroy(memory);
    }
    char version[32];
    std::snprintf(version, sizeof version, "%d.%d.%d", CELLAR_VERSION_MAJOR, CELLAR_VERSION_MINOR,
                  CELLAR_VERSION_PATCH);
    expect(std::strcmp(version, cellar_version()) == 0, "header and library are of one version");
    std::printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
