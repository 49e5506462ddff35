/*
 * from_cpp.cpp: the same from C++17.
 *
 * Objects own what they hold, views carry sizes that are checked, failures are exceptions. Leaving a step
 * without a commit, by an exception say, aborts it.
 */
#include <cellar.hpp>

#include <cstdio>

int main()
try {
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = 8;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = 4;
    cellar::memory memory(config);

    const std::vector<cellar_token> tokens = {11, 12, 13};
    const std::vector<float> rows(3 * 8, 0.5f);
    std::vector<float> out(3 * 8);
    {
        cellar::step step(memory, cellar::batch(tokens));
        step.store(0, 0, rows, rows);
        step.attend(0, 0, rows, out);
        step.commit();
    }
    memory.fork(0, 7);
    std::printf("7 holds %u cells, %u of them shared\n", memory.sequence(7).n_cells,
                memory.sequence(7).n_shared);

    if (!cellar::try_begin(memory, cellar::batch(tokens))) std::puts("no room for three more");
    cellar::step step(memory, cellar::batch(tokens)); /* throws */
    return 1;
} catch (const cellar::error &e) {
    std::printf("%s: %s\n", cellar_status_text(e.status()), e.what());
    return e.status() == CELLAR_FULL ? 0 : 1;
}
