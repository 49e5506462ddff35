/*
 * cellar.hpp: thin C++17 wrappers around cellar.h. Ownership, views, exceptions; nothing else.
 *
 *     cellar::memory memory(config);                       // cellar_create; cellar_destroy at its end
 *     {
 *         cellar::step step(memory, batch);                // cellar_begin
 *         for (uint32_t u = 0; u < step.size(); u++) {
 *             step.store(u, layer, k, v);                  // vectors, arrays, anything with data() and size()
 *             step.attend(u, layer, q, out);
 *         }
 *         step.commit();                                   // left without it, the step is aborted
 *     }
 *     memory.fork(0, 7);
 *
 * Failure is an exception, cellar::error, with the status, reason, place and message of cellar_error. Why not a
 * result to be looked at: what fails here is mostly a constructor, or a bug; a result can be forgotten, and the
 * C calls are there for who wants one. What is no failure in an engine's daily life is no exception either:
 * try_begin says whether there was room, rewind from where to read again, can_continue yes or no.
 * A call that throws changed nothing, as in C.
 *
 * Objects are moved, never copied. get() gives the C handle, for all calls that have no wrapper; those that have one are
 * documented in cellar.h. A session, journal, step or library must end before its memory does.
 * Views are checked against the layer's shape where C can only trust. Compiled without exceptions this header
 * does not work: use cellar.h, which is C++ too.
 */
#ifndef CELLAR_HPP
#define CELLAR_HPP

#include <cellar.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar
{

/* What a failed call throws. what() is the message. */
class error : public std::runtime_error
{
  public:
    explicit error(const cellar_error &e)
        : std::runtime_error(e.message), status_(e.status), reason_(e.reason), at_(e.at)
    {
    }
    cellar_status status() const noexcept
    {
        return status_;
    }
    cellar_reason reason() const noexcept
    {
        return reason_;
    }
    std::int64_t at() const noexcept
    {
        return at_;
    }

  private:
    cellar_status status_;
    cellar_reason reason_;
    std::int64_t at_;
};

namespace detail
{

inline void check(cellar_status status, cellar_error &e)
{
    if (status == CELLAR_OK) return;
    e.status = status;
    throw error(e);
}

inline cellar_error blank() noexcept
{
    cellar_error e;
    e.status = CELLAR_OK;
    e.reason = CELLAR_REASON_NONE;
    e.at = -1;
    e.message[0] = '\0';
    return e;
}

[[noreturn]] inline void refuse(const std::string &message)
{
    cellar_error e = blank();
    e.status = CELLAR_INVALID;
    e.reason = CELLAR_REASON_ARGUMENT;
    const std::size_t length = message.copy(e.message, sizeof e.message - 1);
    e.message[length] = '\0';
    throw error(e);
}

/* A count as the C structs have it; what does not fit is refused, not cut off. */
inline std::uint32_t count(std::size_t n)
{
    if (n > std::numeric_limits<std::uint32_t>::max()) refuse("more than 2^32 - 1 elements");
    return static_cast<std::uint32_t>(n);
}

/* Runs a C++ callable as a C visitor. What it throws waits until the C frames are gone. */
template <typename Item, typename Visitor> struct visit {
    Visitor &visitor;
    std::exception_ptr thrown;

    static bool call(void *context, const Item *item) noexcept
    {
        auto *self = static_cast<visit *>(context);
        try {
            if constexpr (std::is_convertible_v<decltype(self->visitor(*item)), bool>) {
                return static_cast<bool>(self->visitor(*item));
            } else {
                self->visitor(*item);
                return true;
            }
        } catch (...) {
            self->thrown = std::current_exception();
            return false;
        }
    }
    void rethrow() const
    {
        if (thrown) std::rethrow_exception(thrown);
    }
};

} // namespace detail

/* Elements that somebody else owns: a pointer and a number. From vectors, arrays, std::span. */
template <typename T> class view
{
  public:
    constexpr view() noexcept = default;
    constexpr view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N> constexpr view(T (&array)[N]) noexcept : data_(array), size_(N) {}
    template <typename C,
              typename = std::enable_if_t<
                  !std::is_same_v<std::decay_t<C>, view> &&
                  std::is_convertible_v<decltype(std::declval<C &>().data()), T *> &&
                  std::is_convertible_v<decltype(std::declval<C &>().size()), std::size_t>>>
    constexpr view(C &&c) noexcept : data_(c.data()), size_(c.size())
    {
    }
    constexpr T *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr T *begin() const noexcept
    {
        return data_;
    }
    constexpr T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr T &operator[](std::size_t i) const noexcept
    {
        return data_[i];
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* A batch: positions follow from the sequence, unless given. The views must live until begin returns. */
inline cellar_batch batch(view<const cellar_token> tokens, view<const cellar_seq> seqs = {},
                          view<const cellar_pos> positions = {})
{
    if (seqs.data() && seqs.size() != tokens.size()) detail::refuse("a batch needs a seq a token");
    if (positions.data() && positions.size() != tokens.size())
        detail::refuse("a batch needs a position a token");
    cellar_batch b = cellar_batch_init();
    b.n_tokens = detail::count(tokens.size());
    b.tokens = tokens.data();
    b.seqs = seqs.data();
    b.positions = positions.data();
    return b;
}

/* What cellar_create would ask for. */
inline cellar_sizes measure(const cellar_config &config)
{
    cellar_error e = detail::blank();
    cellar_sizes sizes;
    detail::check(cellar_measure(&config, &sizes, &e), e);
    return sizes;
}

/* A memory, and what is done to its sequences. */
class memory
{
  public:
    explicit memory(const cellar_config &config)
    {
        cellar_error e = detail::blank();
        cellar_memory *made = nullptr;
        detail::check(cellar_create(&config, &made, &e), e);
        handle_.reset(made);
        auto all = std::make_shared<std::vector<shape>>();
        for (std::uint32_t l = 0; l < config.n_layers; l++)
            all->push_back(shape_of(config.layers[l]));
        shapes_ = std::move(all);
    }

    cellar_memory *get() const noexcept
    {
        return handle_.get();
    }

    /* Elements that a token has in q, k, v and out of a layer; 0: none. */
    struct shape {
        std::size_t q, k, v, out;
    };
    using shapes = std::shared_ptr<const std::vector<shape>>;
    const shapes &layers() const noexcept
    {
        return shapes_;
    }

    /* ---- sequences */
    void remove(cellar_seq seq, cellar_pos p0 = 0, cellar_pos p1 = -1)
    {
        call([&](cellar_error *e) { return cellar_remove(get(), seq, p0, p1, e); });
    }
    void copy(cellar_seq from, cellar_seq to, cellar_pos p0, cellar_pos p1)
    {
        call([&](cellar_error *e) { return cellar_copy(get(), from, to, p0, p1, e); });
    }
    void fork(cellar_seq from, cellar_seq to)
    {
        copy(from, to, 0, -1);
    }
    void keep(cellar_seq seq)
    {
        call([&](cellar_error *e) { return cellar_keep(get(), seq, e); });
    }
    void clear()
    {
        call([&](cellar_error *e) { return cellar_clear(get(), e); });
    }
    void shift(cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos delta)
    {
        call([&](cellar_error *e) { return cellar_shift(get(), seq, p0, p1, delta, e); });
    }
    /* Returns how many positions were forgotten. */
    cellar_pos shift_context(cellar_seq seq, cellar_pos keep, cellar_pos discard = 0)
    {
        cellar_pos n = 0;
        call([&](cellar_error *e) {
            return cellar_shift_context(get(), seq, keep, discard, &n, e);
        });
        return n;
    }
    void divide(cellar_seq seq, cellar_pos p0, cellar_pos p1, cellar_pos divisor)
    {
        call([&](cellar_error *e) { return cellar_divide(get(), seq, p0, p1, divisor, e); });
    }
    void settle(cellar_seq seq)
    {
        call([&](cellar_error *e) { return cellar_settle(get(), seq, e); });
    }
    void checkpoint(cellar_seq seq)
    {
        call([&](cellar_error *e) { return cellar_checkpoint(get(), seq, e); });
    }
    /* Returns the position from which tokens have to be read again; n: none. */
    cellar_pos rewind(cellar_seq seq, cellar_pos n)
    {
        cellar_pos from = 0;
        call([&](cellar_error *e) { return cellar_rewind(get(), seq, n, &from, e); });
        return from;
    }

    /* ---- questions */
    bool can_continue(cellar_seq seq, cellar_pos n) const
    {
        cellar_error e = detail::blank();
        const cellar_status status = cellar_can_continue(get(), seq, n, nullptr, &e);
        if (status == CELLAR_REPLAY) return false;
        detail::check(status, e);
        return true;
    }
    cellar_sequence_info sequence(cellar_seq seq) const
    {
        cellar_sequence_info info;
        call([&](cellar_error *e) { return cellar_get_sequence(get(), seq, &info, e); });
        return info;
    }
    cellar_statistics statistics() const
    {
        cellar_statistics s;
        call([&](cellar_error *e) { return cellar_stats(get(), &s, e); });
        return s;
    }
    void check() const
    {
        call([&](cellar_error *e) { return cellar_check(get(), e); });
    }
    /* visitor(const cellar_run &), (const cellar_cell &): returns nothing, or false to stop. */
    template <typename V> void visit_runs(cellar_seq seq, V &&visitor) const
    {
        detail::visit<cellar_run, V> v{visitor, nullptr};
        call([&](cellar_error *e) {
            return cellar_visit_runs(get(), seq, detail::visit<cellar_run, V>::call, &v, e);
        });
        v.rethrow();
    }
    template <typename V> void visit_cells(V &&visitor) const
    {
        detail::visit<cellar_cell, V> v{visitor, nullptr};
        call([&](cellar_error *e) {
            return cellar_visit_cells(get(), detail::visit<cellar_cell, V>::call, &v, e);
        });
        v.rethrow();
    }
    template <typename V> void visit_moves(V &&visitor) const
    {
        detail::visit<cellar_move, V> v{visitor, nullptr};
        call([&](cellar_error *e) {
            return cellar_visit_moves(get(), detail::visit<cellar_move, V>::call, &v, e);
        });
        v.rethrow();
    }
    void confirm_moves()
    {
        call([&](cellar_error *e) { return cellar_confirm_moves(get(), e); });
    }

    /* ---- sessions */
    void save(const std::string &path,
              const cellar_save_options &options = cellar_save_options_init()) const
    {
        call(
            [&](cellar_error *e) { return cellar_save_session(get(), &options, path.c_str(), e); });
    }
    /* The same into memory. */
    std::vector<std::byte> save(
        const cellar_save_options &options = cellar_save_options_init()) const
    {
        std::uint64_t size = 0;
        call([&](cellar_error *e) { return cellar_measure_session(get(), &options, &size, e); });
        std::vector<std::byte> bytes;
        bytes.reserve(static_cast<std::size_t>(size));
        const cellar_writer writer = {append, &bytes};
        call([&](cellar_error *e) { return cellar_write_session(get(), &options, &writer, e); });
        return bytes;
    }

  private:
    struct destroy {
        void operator()(cellar_memory *m) const noexcept
        {
            cellar_destroy(m);
        }
    };

    template <typename Call> static void call(Call &&c)
    {
        cellar_error e = detail::blank();
        detail::check(c(&e), e);
    }
    static shape shape_of(const cellar_layer &l) noexcept
    {
        if (l.kind != CELLAR_LAYER_ATTENTION) return {0, 0, 0, 0};
        const auto size = [](std::uint32_t heads, std::uint32_t each) {
            return static_cast<std::size_t>(heads) * each;
        };
        return {size(l.n_heads, l.k_size), size(l.n_kv_heads, l.k_size),
                l.v_in_k ? 0 : size(l.n_kv_heads, l.v_size), size(l.n_heads, l.v_size)};
    }
    static bool append(void *context, const void *bytes, std::size_t size) noexcept
    {
        auto *to = static_cast<std::vector<std::byte> *>(context);
        const auto *from = static_cast<const std::byte *>(bytes);
        try {
            to->insert(to->end(), from, from + size);
            return true;
        } catch (...) {
            return false;
        }
    }

    std::unique_ptr<cellar_memory, destroy> handle_;
    shapes shapes_;
};

/* An open step. Leaving it without commit, by an exception say, aborts it. */
class step
{
  public:
    step(memory &m, const cellar_batch &b) : handle_(m.get()), shapes_(m.layers())
    {
        cellar_error e = detail::blank();
        begin(cellar_begin(handle_, &b, &e), e);
    }
    /* With a library, which evicts what it retains when there is no room. */
    step(memory &m, cellar_library *library, const cellar_batch &b)
        : handle_(m.get()), shapes_(m.layers())
    {
        cellar_error e = detail::blank();
        begin(cellar_library_begin(library, &b, &e), e);
    }
    step(step &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), shapes_(std::move(other.shapes_))
    {
    }
    step &operator=(step &&other) noexcept
    {
        if (this != &other) {
            abort();
            handle_ = std::exchange(other.handle_, nullptr);
            shapes_ = std::move(other.shapes_);
        }
        return *this;
    }
    step(const step &) = delete;
    step &operator=(const step &) = delete;
    ~step()
    {
        abort();
    }

    std::uint32_t size() const noexcept
    {
        return handle_ ? cellar_count_ubatches(handle_) : 0;
    }

    cellar_ubatch ubatch(std::uint32_t number) const
    {
        cellar_error e = detail::blank();
        cellar_ubatch u;
        detail::check(cellar_get_ubatch(get(), number, &u, &e), e);
        return u;
    }
    void store(std::uint32_t number, std::uint32_t layer, view<const float> k,
               view<const float> v = {})
    {
        const std::size_t n = ubatch(number).n_tokens;
        const memory::shape &shape = shape_of(layer);
        if (k.size() != n * shape.k || v.size() != n * shape.v)
            detail::refuse("layer " + std::to_string(layer) + ": k needs " +
                           std::to_string(n * shape.k) + " numbers and v " +
                           std::to_string(n * shape.v));
        cellar_error e = detail::blank();
        detail::check(cellar_store(get(), number, layer, k.data(), v.data(), &e), e);
    }
    void attend(std::uint32_t number, std::uint32_t layer, view<const float> q, view<float> out)
    {
        const std::size_t n = ubatch(number).n_tokens;
        const memory::shape &shape = shape_of(layer);
        if (q.size() != n * shape.q || out.size() != n * shape.out)
            detail::refuse("layer " + std::to_string(layer) + ": q needs " +
                           std::to_string(n * shape.q) + " numbers and out " +
                           std::to_string(n * shape.out));
        cellar_error e = detail::blank();
        detail::check(cellar_attend(get(), number, layer, q.data(), out.data(), &e), e);
    }
    void confirm(std::uint32_t number, std::uint32_t layer)
    {
        cellar_error e = detail::blank();
        detail::check(cellar_confirm(get(), number, layer, &e), e);
    }
    /* The states of a segment; then cellar_state_data for their numbers. */
    cellar_states states(std::uint32_t number, std::uint32_t segment) const
    {
        cellar_error e = detail::blank();
        cellar_states s;
        detail::check(cellar_get_states(get(), number, segment, &s, &e), e);
        return s;
    }
    void commit()
    {
        cellar_error e = detail::blank();
        detail::check(cellar_commit(get(), &e), e);
        handle_ = nullptr;
    }
    void abort() noexcept
    {
        if (handle_) cellar_abort(handle_);
        handle_ = nullptr;
    }

  private:
    void begin(cellar_status status, cellar_error &e)
    {
        if (status != CELLAR_OK) handle_ = nullptr;
        detail::check(status, e);
    }
    cellar_memory *get() const
    {
        if (!handle_) detail::refuse("the step has ended");
        return handle_;
    }
    const memory::shape &shape_of(std::uint32_t layer) const
    {
        if (layer >= shapes_->size()) detail::refuse("there is no layer " + std::to_string(layer));
        return (*shapes_)[layer];
    }
    cellar_memory *handle_; /* of the memory, which may be moved meanwhile; null: ended */
    memory::shapes shapes_;
};

/* A step, or nothing if there are too few free cells or states. Everything else throws. */
inline std::optional<step> try_begin(memory &m, const cellar_batch &b)
{
    try {
        return std::optional<step>(std::in_place, m, b);
    } catch (const error &e) {
        if (e.status() == CELLAR_FULL) return std::nullopt;
        throw;
    }
}

/* A session that is open for reading: a file, or bytes, which must stay until it is closed. */
class session
{
  public:
    explicit session(const std::string &path)
    {
        cellar_error e = detail::blank();
        cellar_session *opened = nullptr;
        detail::check(cellar_open_session(path.c_str(), nullptr, &opened, &e), e);
        handle_.reset(opened);
    }
    explicit session(view<const std::byte> bytes)
    {
        cellar_error e = detail::blank();
        cellar_session *opened = nullptr;
        detail::check(cellar_open_session_bytes(bytes.data(), bytes.size(), nullptr, &opened, &e),
                      e);
        handle_.reset(opened);
    }
    cellar_session *get() const noexcept
    {
        return handle_.get();
    }
    cellar_session_info info() const
    {
        cellar_error e = detail::blank();
        cellar_session_info i;
        detail::check(cellar_describe_session(get(), &i, &e), e);
        return i;
    }
    void check() const
    {
        cellar_error e = detail::blank();
        detail::check(cellar_check_session(get(), &e), e);
    }
    void load_into(memory &m, const cellar_load_options &options = cellar_load_options_init()) const
    {
        cellar_error e = detail::blank();
        detail::check(cellar_load_session(m.get(), get(), &options, &e), e);
    }

  private:
    struct close {
        void operator()(cellar_session *s) const noexcept
        {
            cellar_close_session(s);
        }
    };
    std::unique_ptr<cellar_session, close> handle_;
};

/* A file that is saved to again and again. */
class journal
{
  public:
    journal(memory &m, const std::string &path)
    {
        cellar_error e = detail::blank();
        cellar_journal *opened = nullptr;
        detail::check(cellar_open_journal(m.get(), path.c_str(), &opened, &e), e);
        handle_.reset(opened);
    }
    cellar_journal *get() const noexcept
    {
        return handle_.get();
    }
    void load(const cellar_load_options &options = cellar_load_options_init())
    {
        cellar_error e = detail::blank();
        detail::check(cellar_load_journal(get(), &options, &e), e);
    }
    /* Returns how many bytes were written. */
    std::uint64_t save(const cellar_save_options &options = cellar_save_options_init())
    {
        cellar_error e = detail::blank();
        std::uint64_t n = 0;
        detail::check(cellar_save_journal(get(), &options, &n, &e), e);
        return n;
    }

  private:
    struct close {
        void operator()(cellar_journal *j) const noexcept
        {
            cellar_close_journal(j);
        }
    };
    std::unique_ptr<cellar_journal, close> handle_;
};

/* The prefix library. */
class library
{
  public:
    library(memory &m, const cellar_library_config &config)
    {
        cellar_error e = detail::blank();
        cellar_library *made = nullptr;
        detail::check(cellar_library_create(m.get(), &config, &made, &e), e);
        handle_.reset(made);
    }
    cellar_library *get() const noexcept
    {
        return handle_.get();
    }
    cellar_prefix find(const cellar_prefix_key &key, view<const cellar_token> tokens,
                       std::uint32_t most) const
    {
        cellar_error e = detail::blank();
        cellar_prefix p;
        detail::check(cellar_library_find(get(), &key, tokens.data(), detail::count(tokens.size()),
                                          most, &p, &e),
                      e);
        return p;
    }
    cellar_prefix attach(const cellar_prefix_key &key, cellar_seq seq,
                         view<const cellar_token> tokens, std::uint32_t most)
    {
        cellar_error e = detail::blank();
        cellar_prefix p;
        detail::check(cellar_library_attach(get(), &key, seq, tokens.data(),
                                            detail::count(tokens.size()), most, &p, &e),
                      e);
        return p;
    }
    void extend(cellar_seq seq, view<const cellar_token> tokens)
    {
        cellar_error e = detail::blank();
        detail::check(
            cellar_library_extend(get(), seq, tokens.data(), detail::count(tokens.size()), &e), e);
    }
    /* Returns the number of the entry; 0: it had read nothing. */
    std::uint64_t retain(cellar_seq seq)
    {
        cellar_error e = detail::blank();
        std::uint64_t entry = 0;
        detail::check(cellar_library_retain(get(), seq, &entry, &e), e);
        return entry;
    }
    void release(cellar_seq seq)
    {
        cellar_error e = detail::blank();
        detail::check(cellar_library_release(get(), seq, &e), e);
    }

  private:
    struct destroy {
        void operator()(cellar_library *l) const noexcept
        {
            cellar_library_destroy(l);
        }
    };
    std::unique_ptr<cellar_library, destroy> handle_;
};

} // namespace cellar

#endif /* CELLAR_HPP */
