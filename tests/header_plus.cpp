/*
 * header_plus.cpp: cellar.hpp alone, as strict C++17, and what it promises.
 *
 * Objects own what they hold and can be moved; a step that is left aborts; failures are exceptions that carry what
 * cellar_error carries; too small views and exceptions in visitors are caught. That each wrapper calls what
 * it is named after is seen from its effect.
 */
#include "cellar.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>

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

/* The status that a call throws; CELLAR_OK: none. */
template <typename Call> static cellar_status thrown(Call &&call, std::string *message = nullptr)
{
    try {
        call();
    } catch (const cellar::error &e) {
        if (message) *message = e.what();
        return e.status();
    }
    return CELLAR_OK;
}

static cellar::memory make_memory(std::uint32_t n_cells)
{
    cellar_layer layer = cellar_layer_init();
    layer.n_heads = 2;
    layer.n_kv_heads = 1;
    layer.k_size = layer.v_size = 8;
    layer.rope.kind = CELLAR_ROPE_NEOX;
    cellar_config config = cellar_config_init();
    config.n_layers = 1;
    config.layers = &layer;
    config.n_cells = n_cells;
    return cellar::memory(config);
}

/* n tokens at the end of a sequence, their value rows all `value`. Returns the last result. */
static float read_tokens(cellar::memory &memory, cellar_seq seq, std::size_t n, float value)
{
    const std::vector<cellar_token> tokens(n, 5);
    const std::vector<cellar_seq> seqs(n, seq);
    const std::vector<float> k(n * 8, 0.5f), v(n * 8, value), q(n * 16, 0.25f);
    std::vector<float> out(n * 16);
    cellar::step step(memory, cellar::batch(tokens, seqs));
    step.store(0, 0, k, v);
    step.attend(0, 0, q, out);
    step.commit();
    return out.back();
}

static void test_steps()
{
    cellar::memory memory = make_memory(64);
    expect(read_tokens(memory, 0, 3, 2) == 2, "a token that sees twos gives two");
    memory.fork(0, 7);
    expect(memory.sequence(7).pos_next == 3 && memory.statistics().n_used == 3, "a fork shares");

    const std::array<cellar_token, 2> tokens = {1, 2};
    {
        auto first = std::make_unique<cellar::memory>(make_memory(64));
        cellar::step step(*first, cellar::batch(tokens));
        const cellar::memory moved(std::move(*first));
        first.reset();
        const std::vector<float> rows(16);
        step.store(0, 0, rows, rows);
        step.commit();
        expect(moved.sequence(0).pos_next == 2, "a memory can be moved under an open step");
    }
    {
        cellar::step step(memory, cellar::batch(tokens));
        expect(step.size() == 1 && step.ubatch(0).n_tokens == 2, "a step has its micro-batch");
    }
    expect(memory.sequence(0).pos_next == 3, "a step that is left is aborted");
    try {
        cellar::step step(memory, cellar::batch(tokens));
        throw std::runtime_error("a model that fails");
    } catch (const std::runtime_error &) {
    }
    expect(memory.statistics().n_used == 3, "so is one that an exception leaves");

    cellar::step first(memory, cellar::batch(tokens));
    cellar::step second(std::move(first));
    const float small[3] = {0, 0, 0};
    std::string message;
    expect(thrown([&] { second.store(0, 0, small, small); }, &message) == CELLAR_INVALID &&
               message.find("16 numbers") != std::string::npos,
           "views of another size are refused, with the right one");
    expect(thrown([&] { second.store(0, 9, small, small); }) == CELLAR_INVALID &&
               thrown([&] { second.store(4, 0, small, small); }) == CELLAR_INVALID,
           "so are layers and micro-batches that are not there");
    expect(thrown([&] { second.commit(); }) == CELLAR_INVALID, "and a commit before all is stored");
    second.abort();
    expect(thrown([&] { second.commit(); }) == CELLAR_INVALID && second.size() == 0,
           "an ended step cannot be committed");
    expect(thrown([&] { cellar::batch(tokens, std::vector<cellar_seq>(5)); }) == CELLAR_INVALID,
           "a batch needs a sequence for each token");
}

static void test_room()
{
    cellar::memory memory = make_memory(32);
    read_tokens(memory, 0, 30, 1);
    const std::vector<cellar_token> tokens(5, 1);
    expect(!cellar::try_begin(memory, cellar::batch(tokens)), "try_begin says that it is full");
    cellar_status status = CELLAR_OK;
    std::int64_t at = 0;
    try {
        cellar::step step(memory, cellar::batch(tokens));
    } catch (const cellar::error &e) {
        status = e.status();
        at = e.at();
        expect(e.reason() == CELLAR_REASON_NO_CELLS, "an exception has a reason");
    }
    expect(status == CELLAR_FULL && at == 3, "a step says how many cells are missing");
    expect(memory.shift_context(0, 2) == 14, "a shift says what was forgotten");
    expect(cellar::try_begin(memory, cellar::batch(tokens)).has_value(), "now there is room");
    expect(memory.rewind(0, 10) == 10 && memory.can_continue(0, 10) && !memory.can_continue(0, 12),
           "questions are answered, not thrown");
    const cellar_config nothing = cellar_config_init();
    expect(thrown([&] { cellar::memory none(nothing); }) == CELLAR_INVALID &&
               thrown([&] { cellar::measure(nothing); }) == CELLAR_INVALID,
           "a constructor that cannot throws");
}

static void test_sequences()
{
    cellar::memory memory = make_memory(64);
    read_tokens(memory, 0, 8, 1);
    memory.copy(0, 1, 0, 4);
    memory.remove(0, 4);
    memory.shift(0, 2, -1, 3);
    expect(memory.sequence(0).pos_max == 6 && memory.sequence(1).pos_max == 3,
           "copy, remove, shift");
    memory.divide(1, 0, -1, 2);
    memory.settle(1);
    expect(memory.sequence(1).pos_max == 1 && memory.sequence(1).n_shifts == 0, "divide, settle");
    int n_runs = 0, n_cells = 0;
    memory.visit_runs(0, [&](const cellar_run &) { n_runs++; });
    memory.visit_cells([&](const cellar_cell &) { return ++n_cells < 2; });
    expect(n_runs == 2 && n_cells == 2, "visitors see, and stop");
    bool is_caught = false;
    try {
        memory.visit_cells([](const cellar_cell &) { throw std::logic_error("enough"); });
    } catch (const std::logic_error &) {
        is_caught = true;
    }
    expect(is_caught, "what a visitor throws comes out behind the call");
    memory.keep(1);
    expect(memory.sequence(0).pos_max == -1, "keep");
    memory.clear();
    expect(memory.statistics().n_used == 0, "clear");
    memory.checkpoint(3);
    memory.check();
}

static void test_sessions()
{
    cellar::memory memory = make_memory(64), other = make_memory(128);
    read_tokens(memory, 3, 5, 4);
    const std::vector<std::byte> bytes = memory.save();
    cellar::session session{cellar::view<const std::byte>(bytes)};
    session.check();
    session.load_into(other);
    expect(other.sequence(3).pos_max == 4 && session.info().n_sequences == 1, "bytes are loaded");
    expect(read_tokens(other, 3, 1, 4) == 4, "and read on");

    const char *folder = std::getenv("TMPDIR");
    const std::string path = std::string(folder ? folder : "/tmp") + "/header_plus_" +
                             std::to_string(reinterpret_cast<std::uintptr_t>(&memory)) + ".cellar";
    memory.save(path);
    cellar::memory third = make_memory(64);
    cellar::session(path).load_into(third);
    {
        cellar::journal journal(third, path);
        journal.load();
        read_tokens(third, 3, 2, 4);
        expect(journal.save() > 0, "a journal says what it wrote");
    }
    expect(cellar::session(path).info().bytes > 0 && third.sequence(3).pos_max == 6, "files");
    std::remove(path.c_str());
    expect(thrown([&] { cellar::session gone(path); }) == CELLAR_NOT_FOUND, "no file, no session");
    expect(thrown([&] {
               cellar::session cut(cellar::view<const std::byte>(bytes.data(), bytes.size() / 2));
           }) == CELLAR_CORRUPT,
           "half of a session is refused");
}

static void test_library()
{
    cellar::memory memory = make_memory(64);
    cellar::library library(memory, cellar_library_config_init());
    const cellar_prefix_key key = cellar_prefix_key_init();
    const std::vector<cellar_token> tokens = {5, 5, 5, 5};
    expect(library.attach(key, 0, tokens, 3).reused == 0, "the first prompt is new");
    read_tokens(memory, 0, 4, 1);
    library.extend(0, tokens);
    expect(library.retain(0) != 0, "it is retained");
    expect(library.find(key, tokens, 3).reusable == 3 &&
               library.attach(key, 0, tokens, 3).reused == 3,
           "the second reuses it");
    {
        const cellar_seq seqs[] = {0};
        cellar::step step(memory, library.get(), cellar::batch({tokens.data(), 1}, seqs));
    }
    library.release(0);
}

int main()
{
    static_assert(!std::is_copy_constructible_v<cellar::memory> &&
                      std::is_nothrow_move_constructible_v<cellar::memory> &&
                      !std::is_copy_constructible_v<cellar::step> &&
                      !std::is_copy_constructible_v<cellar::session>,
                  "objects are moved, never copied");
    try {
        test_steps();
        test_room();
        test_sequences();
        test_sessions();
        test_library();
    } catch (const std::exception &e) {
        expect(false, e.what());
    }
    std::printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed ? 1 : 0;
}
