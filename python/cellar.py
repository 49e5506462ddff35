"""The memory of a language model, from Python: libcellar by ctypes.

    import cellar

    layer = cellar.Layer(n_heads=4, n_kv_heads=2, k_size=64, v_size=64, rope=cellar.Rope("neox"))
    with cellar.Memory([layer], n_cells=4096) as memory:
        with memory.begin([11, 12, 13]) as step:         # commits at its end, aborts on an exception
            for ubatch in step:
                ubatch.store(0, k, v)                    # float32: numpy, array.array('f'), memoryview, ...
                out = ubatch.attend(0, q)                # shape (tokens, n_heads, v_size)
        memory[0].fork(7)                                # no row is copied
        memory[7].rewind(2)
        memory.save("tale.cellar", facts={"weights": "1f3870be"})

Which library: the file that CELLAR_LIBRARY names, if it is set; else the system's libcellar.so.0. Nothing else is
needed. Where numpy is installed arrays are numpy's, else memoryviews of the same shape. The library reads and writes
arrays where they lie; only `rows`, which converts, makes new ones, and a read-only buffer is copied where there is no numpy.

What a call may do, and when it is refused, stands in cellar.h. A refusal is an exception of the class that is
named after its status (Full, Replay, Mismatch, ...), all of them Error, with `status`, `reason` and `at`. Views of
memory that the library owns keep their owner alive, are read-only, and forbid closing it while they live (BufferError).
One thread at a time uses a memory.
"""

import ctypes
import enum
import operator
import os
import weakref
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof)

try:
    import numpy
except ImportError:  # everything works without
    numpy = None

__all__ = ["Memory", "Layer", "Rope", "Window", "Session", "Journal", "Step", "Snapshot", "Error", "Status", "Type",
           "Invalid", "Full", "Replay", "Refused", "Busy", "NoMemory", "Unsupported", "Corrupt", "Mismatch", "Failed",
           "NotFound", "version"]


# ---- the structs of cellar.h, field by field (tests/test_cellar.py holds their layouts against a C compiler)


class _Struct(Structure):
    """With names and values when printed."""

    def __repr__(self):
        return f"<{', '.join(f'{name} {getattr(self, name)}' for name, *_ in self._fields_)}>"


class _Error(Structure):
    _fields_ = [("status", c_int), ("reason", c_int), ("at", c_int64), ("message", c_char * 232)]


class _Allocator(Structure):
    _fields_ = [("allocate", c_void_p), ("resize", c_void_p), ("release", c_void_p), ("context", c_void_p)]


class _Workers(Structure):
    _fields_ = [("n", c_uint32), ("run", c_void_p), ("context", c_void_p)]


class _Rope(Structure):
    _fields_ = [("kind", c_int), ("n_rot", c_uint32), ("base", c_double), ("scale", c_double),
                ("factors", POINTER(c_float)), ("yarn_ext", c_double), ("yarn_attn", c_double),
                ("yarn_beta_fast", c_double), ("yarn_beta_slow", c_double), ("yarn_context", c_uint32),
                ("first", c_uint32), ("sections", c_uint32 * 4)]


class _Window(Structure):
    _fields_ = [("kind", c_int), ("size", c_uint32), ("n_sinks", c_uint32)]


class _Buckets(Structure):
    _fields_ = [("n", c_uint32), ("max_distance", c_uint32), ("is_bidirectional", c_bool), ("bias", POINTER(c_float))]


class _Layer(Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int), ("n_heads", c_uint32), ("n_kv_heads", c_uint32),
                ("k_size", c_uint32), ("v_size", c_uint32), ("k_type", c_int), ("v_type", c_int), ("scale", c_float),
                ("is_causal", c_bool), ("rope", _Rope), ("window", _Window), ("reads_layer", c_int32),
                ("v_in_k", c_bool), ("rotate_k", c_bool), ("rotate_v", c_bool), ("softcap", c_float),
                ("alibi_max_bias", c_float), ("sinks", POINTER(c_float)), ("buckets", _Buckets),
                ("n_states", c_uint32), ("state_sizes", POINTER(c_uint32)), ("is_external", c_bool),
                ("store", c_void_p)]


class _Config(Structure):
    _fields_ = [("struct_size", c_size_t), ("n_layers", c_uint32), ("layers", POINTER(_Layer)), ("n_cells", c_uint32),
                ("n_ubatch", c_uint32), ("allocator", _Allocator), ("workers", _Workers), ("cpu_mask", c_uint32),
                ("split", c_int), ("n_pools", c_uint32), ("pool_cells", POINTER(c_uint32)), ("pool_of", c_void_p),
                ("pool_context", c_void_p), ("n_sequences", c_uint32), ("is_window_full", c_bool),
                ("rollback_bytes", c_uint64), ("checkpoint_bytes", c_uint64), ("checkpoint_interval", c_uint32),
                ("budget_bytes", c_uint64), ("max_shifts", c_uint32), ("is_contiguous", c_bool),
                ("compaction_threshold", c_float)]


class _Point(_Struct):
    _fields_ = [("y", c_int32), ("x", c_int32)]


class _Batch(Structure):
    _fields_ = [("struct_size", c_size_t), ("n_tokens", c_uint32), ("tokens", POINTER(c_int32)),
                ("positions", POINTER(c_int32)), ("seq_begin", POINTER(c_uint32)), ("seqs", POINTER(c_int32)),
                ("points", POINTER(_Point)), ("checkpoints", POINTER(c_bool))]


class _Segment(Structure):
    _fields_ = [("seq", c_int32), ("first", c_uint32), ("n_tokens", c_uint32)]


class _Ubatch(Structure):
    _fields_ = [("n_tokens", c_uint32), ("indices", POINTER(c_uint32)), ("positions", POINTER(c_int32)),
                ("n_segments", c_uint32), ("segments", POINTER(_Segment))]


class _States(Structure):
    _fields_ = [("source", c_uint32), ("n_targets", c_uint32), ("targets", POINTER(c_uint32)),
                ("after", POINTER(c_uint32))]


class _SequenceInfo(_Struct):
    _fields_ = [("pos_min", c_int32), ("pos_max", c_int32), ("pos_next", c_int32), ("rewind_min", c_int32),
                ("n_cells", c_uint32), ("n_shared", c_uint32), ("n_runs", c_uint32), ("n_shifts", c_uint32),
                ("n_checkpoints", c_uint32), ("pool", c_uint32)]


class _Sizes(Structure):
    _fields_ = [("bytes", c_uint64 * 7), ("total", c_uint64)]


class _Statistics(_Struct):
    _fields_ = [("n_cells", c_uint32), ("n_used", c_uint32), ("n_free", c_uint32), ("n_shared", c_uint32),
                ("longest_free", c_uint32), ("n_sequences", c_uint32), ("n_runs", c_uint64),
                ("n_checkpoints", c_uint32), ("n_moves", c_uint32), ("fragmentation", c_float),
                ("wants_compaction", c_bool), ("sizes", _Sizes), ("budget_bytes", c_uint64),
                ("rows_written", c_uint64), ("rows_moved", c_uint64), ("cells_reclaimed", c_uint64),
                ("checkpoints_dropped", c_uint64)]


class _Run(_Struct):
    _fields_ = [("seq", c_int32), ("pos", c_int32), ("cell", c_uint32), ("len", c_uint32), ("step", c_uint32),
                ("shift", c_int32), ("group", c_uint32)]


class _Cell(_Struct):
    _fields_ = [("cell", c_uint32), ("refs", c_uint32), ("stored_pos", c_int32), ("token", c_int32), ("point", _Point),
                ("group", c_uint32), ("pool", c_uint32)]


class _Note(Structure):
    _fields_ = [("name", c_char_p), ("value", c_void_p), ("size", c_size_t)]


class _Log(Structure):
    _fields_ = [("seq", c_int32), ("n_tokens", c_uint32), ("tokens", POINTER(c_int32))]


class _SaveOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("sequences", POINTER(c_int32)), ("n_sequences", c_uint32),
                ("n_facts", c_uint32), ("n_notes", c_uint32), ("n_logs", c_uint32), ("facts", POINTER(_Note)),
                ("notes", POINTER(_Note)), ("logs", POINTER(_Log))]


class _LoadOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("sequences", POINTER(c_int32)), ("as_", POINTER(c_int32)),
                ("n_sequences", c_uint32), ("n_facts", c_uint32), ("facts", POINTER(_Note)), ("ignores_facts", c_bool)]


class _SessionInfo(_Struct):
    _fields_ = [("bytes", c_uint64), ("live_bytes", c_uint64), ("generation", c_uint64), ("n_facts", c_uint32),
                ("n_notes", c_uint32), ("n_sequences", c_uint32), ("n_checkpoints", c_uint32), ("n_groups", c_uint32),
                ("n_layers", c_uint32), ("n_cells", c_uint64), ("is_journal", c_bool)]


class _SessionSequence(Structure):
    _fields_ = [("seq", c_int32), ("pos_min", c_int32), ("pos_max", c_int32), ("n_cells", c_uint32),
                ("n_runs", c_uint32), ("n_checkpoints", c_uint32), ("n_tokens", c_uint32),
                ("tokens", POINTER(c_int32))]


_WRITE = CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)


class _Writer(Structure):
    _fields_ = [("write", _WRITE), ("context", c_void_p)]


# ---- the library


def _load_library():
    """The file that CELLAR_LIBRARY names, and no other; else the system's."""
    path = os.environ.get("CELLAR_LIBRARY")
    name = path or "libcellar.so.0"
    try:
        library = ctypes.CDLL(name)
        library.cellar_version.restype = c_char_p
        found = library.cellar_version().decode()
    except (OSError, AttributeError) as why:
        advice = "CELLAR_LIBRARY names it" if path else "install libcellar, or let CELLAR_LIBRARY name the file"
        raise ImportError(f"no usable {name} ({advice}): {why}") from why
    if found.split(".")[0] != "0":
        raise ImportError(f"{name} is version {found}; this module is for 0.x")
    return library


_library = _load_library()
_library.cellar_status_text.restype = c_char_p
_library.cellar_state_data.restype = c_void_p
_library.cellar_position_max.restype = c_int32
_library.cellar_position_min.restype = c_int32
for _name in ("cellar_destroy", "cellar_abort", "cellar_close_session", "cellar_close_journal"):
    getattr(_library, _name).restype = None


def version():
    """The version of the library in use, "major.minor.patch"."""
    return _library.cellar_version().decode()


# ---- failures


class Status(enum.IntEnum):
    OK = 0
    INVALID = -1
    FULL = -2
    REPLAY = -3
    REFUSED = -4
    BUSY = -5
    NO_MEMORY = -6
    UNSUPPORTED = -7
    CORRUPT = -8
    MISMATCH = -9
    IO = -10
    NOT_FOUND = -11


class Error(Exception):
    """A call was refused, and changed nothing. `status`, `reason` (CELLAR_REASON_...) and `at` as in cellar.h."""

    def __init__(self, message, status=Status.INVALID, reason=1, at=-1):
        super().__init__(message)
        self.status, self.reason, self.at = status, reason, at


class Invalid(Error, ValueError):
    """An argument breaks a rule."""


class Full(Error):
    """Not enough free cells or states: `at` are missing."""


class Replay(Error):
    """Tokens have to be read again, from position `at` on."""


class Refused(Error):
    """The memory cannot do this without becoming wrong."""


class Busy(Error):
    """A step is open, or row moves wait."""


class NoMemory(Error, MemoryError):
    """The allocator or the budget has no more memory."""


class Unsupported(Error, NotImplementedError):
    """Not supported."""


class Corrupt(Error):
    """A damaged session, at offset `at`."""


class Mismatch(Error):
    """A session of another model."""


class Failed(Error, OSError):
    """Input or output failed."""

    def __str__(self):
        return str(self.args[0])


class NotFound(Error, LookupError):
    """No such file or sequence."""

    def __str__(self):
        return str(self.args[0])


_classes = {Status.INVALID: Invalid, Status.FULL: Full, Status.REPLAY: Replay, Status.REFUSED: Refused,
            Status.BUSY: Busy, Status.NO_MEMORY: NoMemory, Status.UNSUPPORTED: Unsupported, Status.CORRUPT: Corrupt,
            Status.MISMATCH: Mismatch, Status.IO: Failed, Status.NOT_FOUND: NotFound}


def _call(name, *arguments):
    """Call, with a cellar_error at the end; a status other than OK is raised."""
    error = _Error()
    status = getattr(_library, name)(*arguments, byref(error))
    if status != 0:
        status = Status(status)
        message = error.message.decode(errors="replace") or _library.cellar_status_text(c_int(status)).decode()
        raise _classes[status](message, status, error.reason, error.at)


def _text(value, what):
    """Bytes for C: a NUL would cut them off without a word."""
    value = os.fsencode(value)
    if b"\0" in value:
        raise Invalid(f"{what} contains a NUL")
    return value


# ---- numbers and views


def _integers(values, kind, what):
    """A ctypes array of int32 or uint32; out of range is refused, not wrapped."""
    low, high = (0, 2**32 - 1) if kind is c_uint32 else (-2**31, 2**31 - 1)
    try:
        values = [operator.index(v) for v in values]
    except TypeError as why:
        raise Invalid(f"{what}: {why}") from None
    for v in values:
        if not low <= v <= high:
            raise Invalid(f"{what}: {v} is out of range")
    return (kind * len(values))(*values)


def _integer(value, kind, what):
    return _integers([value], kind, what)[0]


class _Floats:
    """The float32 numbers of a buffer, in place: `address`, and the object that has to live meanwhile."""

    def __init__(self, source, n, what, writable=False):
        try:
            view = memoryview(source)
        except TypeError:
            raise Invalid(f"{what} has no buffer: give numpy float32, array.array('f') or a memoryview") from None
        if view.format != "f" or not view.c_contiguous:
            raise Invalid(f"{what} has to be float32 without gaps, not {view.format!r}")
        if view.nbytes != 4 * n:
            raise Invalid(f"{what} has {view.nbytes // 4} numbers, not {n}")
        if view.readonly:
            if writable:
                raise Invalid(f"{what} is read-only")
            if numpy is None:
                view = memoryview(bytearray(view.cast("B")))  # ctypes points into writable memory only
        self.keep = view
        if n == 0:
            self.address = None
        elif view.readonly:
            self.address = numpy.frombuffer(view, numpy.float32).ctypes.data
        else:
            self.address = ctypes.addressof((c_float * n).from_buffer(view.cast("B")))


def _zeros(shape):
    """A new array of float32: numpy's, or a memoryview."""
    if numpy is not None:
        return numpy.zeros(shape, numpy.float32)
    n = 1
    for extent in shape:
        n *= extent
    if n == 0:
        return memoryview(bytearray()).cast("f")
    return memoryview(bytearray(4 * n)).cast("f", shape)


def _borrowed(owner, kind, n, address):
    """A read-only view of the library's memory, which keeps its owner alive and open."""
    block = (kind * n).from_address(address)
    block._owner = owner
    owner._lend(block)
    view = memoryview(block).cast("B").cast("f" if kind is c_float else "i").toreadonly()
    return view if numpy is None else numpy.asarray(view)


def _table(records, kind):
    """Structs side by side: a numpy array with their fields, or a list of namedtuple-like structs."""
    block = (kind * len(records))(*records)
    if numpy is None:
        return list(block)
    return numpy.frombuffer(block, numpy.dtype(kind)) if records else numpy.zeros(0, numpy.dtype(kind))


class _Owner:
    """Something with a handle, which can be closed, and a with-statement that does so."""

    _close = None  # name of the call

    def __init__(self):
        self._handle = c_void_p()
        self._lent = {}  # weak references to what must not outlive the handle, by id

    def _lend(self, thing):
        lent, key = self._lent, id(thing)
        lent[key] = weakref.ref(thing, lambda _: lent.pop(key, None))

    def _open(self):
        if not self._handle:
            raise Invalid(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self):
        """Give it back. BufferError while a view of its memory lives; closing twice is no error."""
        if self._lent:
            raise BufferError(f"{len(self._lent)} views or journals of this {type(self).__name__} are still in use")
        if self._handle:
            getattr(_library, self._close)(self._handle)
            self._handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) and _library is not None:
            getattr(_library, self._close)(self._handle)
            self._handle = c_void_p()


# ---- description of a model


class Type(enum.IntEnum):
    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    IQ4_NL = 20
    BF16 = 30


class Rope:
    """A rotary embedding: kind "none", "normal", "neox" or "mrope"; options are fields of cellar_rope."""

    def __init__(self, kind="none", **options):
        try:
            self.kind = ("none", "normal", "neox", "mrope").index(kind)
        except ValueError:
            raise Invalid(f"there is no rope {kind!r}") from None
        self.options = options


class Window:
    """A sliding window: kind "standard", "chunked" or "symmetric"."""

    def __init__(self, size, kind="standard", n_sinks=0):
        try:
            self.kind = ("none", "standard", "chunked", "symmetric").index(kind)
        except ValueError:
            raise Invalid(f"there is no window {kind!r}") from None
        self.size, self.n_sinks = size, n_sinks


class Layer:
    """One layer. Options are fields of cellar_layer; `rope` is a Rope, `window` a Window, `kind` "attention",
    "recurrent" or "none", `states` the sizes of a recurrent layer's tensors, `buckets` a dict of cellar_buckets. Row types
    are Type's."""

    def __init__(self, n_heads=0, n_kv_heads=0, k_size=0, v_size=0, rope=None, window=None, kind="attention", states=(),
                 buckets=None, **options):
        layer = self._struct = _Layer()
        self._keep = []
        layer.struct_size = sizeof(_Layer)
        layer.k_type = layer.v_type = Type.F16
        layer.is_causal = True
        layer.rope.base, layer.rope.scale, layer.rope.yarn_attn = 10000.0, 1.0, 1.0
        layer.rope.yarn_beta_fast, layer.rope.yarn_beta_slow = 32.0, 1.0
        layer.reads_layer = -1
        try:
            layer.kind = ("attention", "recurrent", "none").index(kind)
        except ValueError:
            raise Invalid(f"there is no layer {kind!r}") from None
        self._set(layer, dict(n_heads=n_heads, n_kv_heads=n_kv_heads, k_size=k_size, v_size=v_size, **options))
        if rope is not None:
            layer.rope.kind = rope.kind
            self._set(layer.rope, rope.options)
        if window is not None:
            layer.window.kind = window.kind
            self._set(layer.window, dict(size=window.size, n_sinks=window.n_sinks))
        if buckets is not None:
            self._set(layer.buckets, buckets)
        if states:
            sizes = _integers(states, c_uint32, "states")
            self._keep.append(sizes)
            layer.n_states, layer.state_sizes = len(sizes), sizes

    def _set(self, struct, options):
        kinds = dict(struct._fields_)
        # Arrays last: how long they have to be, other options say.
        for name, value in sorted(options.items(), key=lambda item: kinds.get(item[0]) is POINTER(c_float)):
            kind = kinds.get(name)
            if kind is None or name in ("struct_size", "kind", "rope", "window", "buckets", "store", "n_states",
                                        "state_sizes"):
                raise Invalid(f"there is no option {name!r}")
            if kind in (c_uint32, c_int32, c_int):
                setattr(struct, name, _integer(value, c_int32 if kind is c_int else kind, name))
            elif kind is POINTER(c_float):
                floats = (c_float * len(value))(*value)
                wanted = self._struct.n_heads
                if name == "factors":
                    wanted = (struct.n_rot or self._struct.k_size) // 2
                elif name == "bias":
                    wanted *= struct.n
                if len(floats) != wanted:
                    raise Invalid(f"{name} needs {wanted} numbers")
                self._keep.append(floats)
                setattr(struct, name, floats)
            elif name == "sections":
                if len(value) != 4:
                    raise Invalid("sections needs 4 numbers")
                struct.sections = _integers(value, c_uint32, name)
            else:
                setattr(struct, name, value)


# ---- sequences


class Sequence:
    """A sequence of a memory, by its name. It exists while it holds something; nothing opens or closes it."""

    def __init__(self, memory, seq):
        self.memory, self.seq = memory, _integer(seq, c_int32, "a sequence")

    def __repr__(self):
        return f"<sequence {self.seq}: {len(self)} positions>"

    def __len__(self):
        """The next position: how many tokens it has read, unless parts were removed."""
        return self.info.pos_next

    def _do(self, name, *arguments):
        _call(name, self.memory._open(), c_int32(self.seq), *arguments)

    def fork(self, to):
        """Let `to` hold exactly what this one holds."""
        return self.copy(to, 0, -1)

    def copy(self, to, p0, p1):
        self._do("cellar_copy", c_int32(_integer(to, c_int32, "to")), *_range(p0, p1))
        return self.memory[to]

    def remove(self, p0=0, p1=-1):
        self._do("cellar_remove", *_range(p0, p1))

    def keep(self):
        """Forget every other sequence."""
        self._do("cellar_keep")

    def shift(self, p0, p1, delta):
        self._do("cellar_shift", *_range(p0, p1), c_int32(_integer(delta, c_int32, "delta")))

    def shift_context(self, keep, discard=0):
        """Make room; returns how many positions were forgotten."""
        n = c_int32()
        self._do("cellar_shift_context", *_range(keep, discard), byref(n))
        return n.value

    def divide(self, p0, p1, divisor):
        self._do("cellar_divide", *_range(p0, p1), c_int32(_integer(divisor, c_int32, "divisor")))

    def settle(self):
        self._do("cellar_settle")

    def checkpoint(self):
        self._do("cellar_checkpoint")

    def rewind(self, n):
        """Go back to position n, or as near as possible: returns from where tokens have to be read again."""
        start = c_int32()
        self._do("cellar_rewind", c_int32(_integer(n, c_int32, "n")), byref(start))
        return start.value

    def can_continue(self, n):
        """True, or False if something would have to be read again."""
        try:
            self._do("cellar_can_continue", c_int32(_integer(n, c_int32, "n")), None)
        except Replay:
            return False
        return True

    @property
    def info(self):
        """A cellar_sequence_info: pos_min, pos_max, pos_next, rewind_min, n_cells, ..."""
        info = _SequenceInfo()
        self._do("cellar_get_sequence", byref(info))
        return info

    def rows(self, layer, p0, n):
        """K and V of n positions, as float32, K rotated for where they stand: new arrays."""
        shape = self.memory._shape(layer)
        n = _integer(n, c_uint32, "n")
        k = _zeros((n, shape.n_kv_heads, shape.k_size))
        v = None if shape.v_in_k else _zeros((n, shape.n_kv_heads, shape.v_size))
        into = [_Floats(x, n * shape.n_kv_heads * size, "rows", writable=True) if x is not None else None
                for x, size in ((k, shape.k_size), (v, shape.v_size))]
        self._do("cellar_read_rows", c_uint32(_integer(layer, c_uint32, "layer")),
                 c_int32(_integer(p0, c_int32, "p0")), c_uint32(n),
                 *(c_void_p(x.address if x else None) for x in into))
        return k, v


def _range(p0, p1):
    return c_int32(_integer(p0, c_int32, "p0")), c_int32(_integer(p1, c_int32, "p1"))


# ---- steps


class Ubatch:
    """The part of a step that is computed at once. `indices`: which tokens of the batch, in the order of the rows of
    q, k and v; `positions`: where they stand; `segments`: (seq, first, n_tokens)."""

    def __init__(self, step, number):
        raw = _Ubatch()
        _call("cellar_get_ubatch", step._open(), c_uint32(number), byref(raw))
        self._step, self.number, self.n_tokens = step, number, raw.n_tokens
        self.indices = raw.indices[:raw.n_tokens]
        self.positions = raw.positions[:raw.n_tokens]
        self.segments = [(s.seq, s.first, s.n_tokens) for s in raw.segments[:raw.n_segments]]

    def _where(self, layer):
        return self._step._open(), c_uint32(self.number), c_uint32(_integer(layer, c_uint32, "layer"))

    def store(self, layer, k, v=None):
        """Keys and values of a layer, not rotated."""
        shape = self._step.memory._shape(layer)
        k = _Floats(k, self.n_tokens * shape.n_kv_heads * shape.k_size, "k")
        v = None if v is None else _Floats(v, self.n_tokens * shape.n_kv_heads * shape.v_size, "v")
        _call("cellar_store", *self._where(layer), c_void_p(k.address), c_void_p(v.address if v else None))

    def attend(self, layer, q, out=None):
        """What each token sees: an array of shape (n_tokens, n_heads, v_size), `out` if it is given."""
        shape = self._step.memory._shape(layer)
        if out is None:
            out = _zeros((self.n_tokens, shape.n_heads, shape.v_size))
        queries = _Floats(q, self.n_tokens * shape.n_heads * shape.k_size, "q")
        results = _Floats(out, self.n_tokens * shape.n_heads * shape.v_size, "out", writable=True)
        _call("cellar_attend", *self._where(layer), c_void_p(queries.address), c_void_p(results.address))
        return out

    def states(self, segment):
        """(source or None, [(target, after how many tokens), ...]) of a segment; then Memory.state, write_state."""
        raw = _States()
        _call("cellar_get_states", self._step._open(), c_uint32(self.number),
              c_uint32(_integer(segment, c_uint32, "segment")), byref(raw))
        source = None if raw.source == 2**32 - 1 else raw.source
        targets = [(raw.targets[i], raw.after[i]) for i in range(raw.n_targets)]
        for target, _ in targets:
            self._step._targets.add(target)
        return source, targets

    def write_state(self, state, layer, tensor, numbers):
        """Write a target of this step. It is copied: the state must not change any more when the step is over."""
        self._step._open()
        if state not in self._step._targets:
            raise Invalid(f"state {state} is no target of this step")
        memory = self._step.memory
        n = memory._state_size(layer, tensor)
        source = _Floats(numbers, n, "a state")
        ctypes.memmove(memory._state_address(state, layer, tensor), source.address, 4 * n)

    def confirm(self, layer):
        """The engine has written its part of a layer (states, rows of its own)."""
        _call("cellar_confirm", *self._where(layer))


class Step:
    """An open step: iterate over its micro-batches. As a with-statement it commits at the end, and aborts on an
    exception, which goes on."""

    def __init__(self, memory, batch):
        _call("cellar_begin", memory._open(), byref(batch))
        self.memory, self._is_open, self._targets = memory, True, set()

    def _open(self):
        if not self._is_open or not self.memory._handle:
            raise Invalid("this step has ended")
        return self.memory._handle

    def __len__(self):
        return _library.cellar_count_ubatches(self._open())

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Ubatch(self, number)

    def commit(self):
        _call("cellar_commit", self._open())
        self._is_open = False

    def abort(self):
        if self._is_open and self.memory._handle:
            _library.cellar_abort(self.memory._handle)
        self._is_open = False

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None and self._is_open:
                self.commit()
        finally:
            self.abort()

    def __del__(self):
        if getattr(self, "_is_open", False):
            self.abort()


# ---- the memory


class Memory(_Owner):
    """Everything one model remembers. Options are fields of cellar_config (n_ubatch, n_sequences, n_pools, split,
    rollback_bytes, checkpoint_bytes, budget_bytes, ...); `pool_cells` is a list."""

    _close = "cellar_destroy"

    def __init__(self, layers, n_cells, **options):
        super().__init__()
        config = _Config()
        config.struct_size = sizeof(_Config)
        config.n_ubatch, config.cpu_mask, config.n_pools, config.n_sequences, config.max_shifts = 512, 2**32 - 1, 1, 1, 256
        # The library copies what it is given; the shapes are needed to check sizes of arrays.
        self._layers = [layer._struct for layer in layers]
        self._keep = [layer._keep for layer in layers]
        config.n_layers = len(self._layers)
        config.layers = (_Layer * len(self._layers))(*self._layers)
        kinds = dict(_Config._fields_)
        for name, value in dict(options, n_cells=n_cells).items():
            kind = kinds.get(name)
            if name == "pool_cells":
                config.pool_cells = _integers(value, c_uint32, name)
                if len(value) != options.get("n_pools", 1):
                    raise Invalid("pool_cells needs a number for each of n_pools")
            elif name in ("struct_size", "n_layers", "layers") or kind not in (c_uint32, c_int, c_uint64, c_bool, c_float):
                raise Invalid(f"there is no option {name!r}")
            elif kind is c_uint64:
                if not 0 <= value < 2**64:
                    raise Invalid(f"{name}: {value} is out of range")
                setattr(config, name, value)
            elif kind in (c_uint32, c_int):
                setattr(config, name, _integer(value, c_uint32, name))
            else:
                setattr(config, name, value)
        _call("cellar_create", byref(config), byref(self._handle))

    def close(self):
        """Give everything back, an open step included."""
        super().close()

    def _shape(self, layer):
        if not 0 <= layer < len(self._layers):
            raise Invalid(f"there is no layer {layer}")
        return self._layers[layer]

    def __getitem__(self, seq):
        """The sequence of that name (it need not hold anything)."""
        return Sequence(self, seq)

    def begin(self, tokens, seq=0, seqs=None, positions=None, checkpoints=None, points=None):
        """Open a Step. `seqs`: for each token its sequence, or a list of sequences; without, all are `seq`'s.
        `points`: (y, x) of each token (M-RoPE)."""
        batch = _Batch()
        batch.struct_size = sizeof(_Batch)
        batch.tokens = ids = _integers(tokens, c_int32, "tokens")
        n = batch.n_tokens = len(ids)
        if seqs is None:
            seqs = [seq] * n
        if len(seqs) != n:
            raise Invalid(f"seqs has {len(seqs)} entries, not {n}")
        lists = [s if isinstance(s, (list, tuple)) else (s,) for s in seqs]
        begin = [0]
        for names in lists:
            begin.append(begin[-1] + len(names))
        batch.seqs = _integers([s for names in lists for s in names], c_int32, "seqs")
        batch.seq_begin = _integers(begin, c_uint32, "seqs")
        for name, values, kind in (("positions", positions, c_int32), ("checkpoints", checkpoints, c_bool)):
            if values is None:
                continue
            if len(values) != n:
                raise Invalid(f"{name} has {len(values)} entries, not {n}")
            setattr(batch, name, (c_bool * n)(*map(bool, values)) if kind is c_bool else _integers(values, kind, name))
        if points is not None:
            if len(points) != n:
                raise Invalid(f"points has {len(points)} entries, not {n}")
            batch.points = (_Point * n)(*(_Point(*_integers(p, c_int32, "points")) for p in points))
        return Step(self, batch)

    def clear(self):
        _call("cellar_clear", self._open())

    def check(self):
        """Verify every invariant, the expensive way."""
        _call("cellar_check", self._open())

    def resize(self, n_cells, pool=0):
        if self._lent:
            raise BufferError("views of this memory are still in use")
        _call("cellar_resize", self._open(), c_uint32(_integer(pool, c_uint32, "pool")),
              c_uint32(_integer(n_cells, c_uint32, "n_cells")))

    def compact(self, max_rows):
        n = c_uint32()
        _call("cellar_compact", self._open(), c_uint32(_integer(max_rows, c_uint32, "max_rows")), byref(n))
        return n.value

    @property
    def statistics(self):
        """A cellar_statistics: n_cells, n_used, n_free, n_shared, rows_moved, ..."""
        statistics = _Statistics()
        _call("cellar_stats", self._open(), byref(statistics))
        return statistics

    def snapshot(self):
        """Who holds what, now."""
        return Snapshot(self)

    # ---- states

    def _state_size(self, layer, tensor):
        shape = self._shape(layer)
        if not 0 <= tensor < shape.n_states:
            raise Invalid(f"layer {layer} has no state tensor {tensor}")
        return shape.state_sizes[tensor]

    def _state_address(self, state, layer, tensor):
        address = _library.cellar_state_data(self._open(), c_uint32(_integer(state, c_uint32, "state")),
                                             c_uint32(layer), c_uint32(tensor))
        if not address:
            raise NotFound(f"there is no state {state}", Status.NOT_FOUND)
        return address

    def state(self, state, layer, tensor=0):
        """A tensor of a state: a read-only view, not copied. What it shows changes when the state is given up and
        used again; while it lives the memory can be neither closed nor resized."""
        n = self._state_size(layer, tensor)
        return _borrowed(self, c_float, n, self._state_address(state, layer, tensor))

    # ---- sessions

    def save(self, path, sequences=None, facts=None, notes=None, logs=None):
        """Write a session file, whole or not at all. facts, notes: names and values (str or bytes); logs: tokens of
        each sequence that is to have them."""
        _call("cellar_save_session", self._open(), byref(_save_options(sequences, facts, notes, logs)),
              _text(path, "the path"))

    def save_bytes(self, sequences=None, facts=None, notes=None, logs=None):
        """The same as bytes."""
        parts = []

        def write(_, address, size):
            parts.append(ctypes.string_at(address, size))
            return True

        writer = _Writer(_WRITE(write), None)
        _call("cellar_write_session", self._open(), byref(_save_options(sequences, facts, notes, logs)),
              byref(writer))
        return b"".join(parts)

    def load(self, session, sequences=None, facts=None, ignores_facts=False):
        """Load from a Session or a path. `sequences`: names in the session, or a dict from those to names here."""
        if not isinstance(session, Session):
            with Session(session) as opened:
                return self.load(opened, sequences, facts, ignores_facts)
        return _call("cellar_load_session", self._open(), session._open(),
                     byref(_load_options(sequences, facts, ignores_facts)))


class Snapshot:
    """Runs and cells as they were, as tables: numpy arrays with fields, or lists of structs. `runs`: seq, pos, cell,
    len, step, shift, group; `cells`: cell, refs, stored_pos, token, point, group, pool. str() draws a map."""

    def __init__(self, memory):
        def collect(name, kind, *more):
            found = []

            def visit(_, item):
                found.append(kind.from_buffer_copy(item[0]))
                return True

            visitor = CFUNCTYPE(c_bool, c_void_p, POINTER(kind))(visit)
            _call(name, memory._open(), *more, visitor, None)
            return found

        self.runs = _table(collect("cellar_visit_runs", _Run, c_int32(-1)), _Run)
        self.cells = _table(collect("cellar_visit_cells", _Cell), _Cell)
        self._lines = []

        def line(_, text):
            self._lines.append(text.decode())
            return True

        _call("cellar_dump", memory._open(), CFUNCTYPE(c_bool, c_void_p, c_char_p)(line), None)

    def __str__(self):
        return "\n".join(self._lines)


# ---- sessions


def _notes(values):
    values = values or {}
    table = (_Note * len(values))()
    table._keep = []
    for entry, (name, value) in zip(table, values.items()):
        value = value.encode() if isinstance(value, str) else bytes(value)
        buffer = ctypes.create_string_buffer(value, len(value) or 1)
        table._keep.append(buffer)
        entry.name = _text(name, "a name")
        entry.value, entry.size = (ctypes.addressof(buffer), len(value)) if value else (None, 0)
    return table


def _save_options(sequences, facts, notes, logs):
    options = _SaveOptions()
    options.struct_size = sizeof(_SaveOptions)
    if sequences is not None:
        options.sequences = names = _integers(sequences, c_int32, "sequences")
        options.n_sequences = len(names)
    options._keep = [_notes(facts), _notes(notes)]
    options.facts, options.n_facts = options._keep[0], len(options._keep[0])
    options.notes, options.n_notes = options._keep[1], len(options._keep[1])
    table = (_Log * len(logs or {}))()
    for entry, (seq, tokens) in zip(table, (logs or {}).items()):
        ids = _integers(tokens, c_int32, "tokens")
        entry.seq, entry.n_tokens, entry.tokens = _integer(seq, c_int32, "a sequence"), len(ids), ids
    options.logs, options.n_logs = table, len(table)
    return options


def _load_options(sequences, facts, ignores_facts):
    options = _LoadOptions()
    options.struct_size = sizeof(_LoadOptions)
    if sequences is not None:
        names = list(sequences)
        options.sequences, options.n_sequences = _integers(names, c_int32, "sequences"), len(names)
        if isinstance(sequences, dict):
            options.as_ = _integers(sequences.values(), c_int32, "sequences")
    options._keep = _notes(facts)
    options.facts, options.n_facts = options._keep, len(options._keep)
    options.ignores_facts = bool(ignores_facts)
    return options


class Session(_Owner):
    """A session that is open for reading: a path, or bytes."""

    _close = "cellar_close_session"

    def __init__(self, source):
        super().__init__()
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._bytes = bytes(source)  # stays until the session is closed, and cannot change
            _call("cellar_open_session_bytes", self._bytes, c_size_t(len(self._bytes)), None, byref(self._handle))
        else:
            _call("cellar_open_session", _text(source, "the path"), None, byref(self._handle))

    def check(self):
        """Read everything, compare every checksum."""
        _call("cellar_check_session", self._open())

    @property
    def info(self):
        """A cellar_session_info: bytes, generation, n_sequences, ..."""
        info = _SessionInfo()
        _call("cellar_describe_session", self._open(), byref(info))
        return info

    def _named(self, call, n):
        found = {}
        for i in range(n):
            note = _Note()
            _call(call, self._open(), c_uint32(i), byref(note))
            found[note.name.decode()] = ctypes.string_at(note.value, note.size) if note.size else b""
        return found

    @property
    def facts(self):
        return self._named("cellar_get_session_fact", self.info.n_facts)

    @property
    def notes(self):
        return self._named("cellar_get_session_note", self.info.n_notes)

    @property
    def sequences(self):
        """Of each sequence, by name, a dict: pos_min, pos_max, n_cells, n_checkpoints and its tokens (a view)."""
        found = {}
        for i in range(self.info.n_sequences):
            raw = _SessionSequence()
            _call("cellar_get_session_sequence", self._open(), c_uint32(i), byref(raw))
            tokens = _borrowed(self, c_int32, raw.n_tokens, ctypes.addressof(raw.tokens.contents)) if raw.n_tokens else []
            found[raw.seq] = dict(pos_min=raw.pos_min, pos_max=raw.pos_max, n_cells=raw.n_cells,
                                  n_checkpoints=raw.n_checkpoints, tokens=tokens)
        return found


class Journal(_Owner):
    """A file that is saved to again and again; what was added is appended. Close it before its memory."""

    _close = "cellar_close_journal"

    def __init__(self, memory, path):
        super().__init__()
        self.memory = memory
        _call("cellar_open_journal", memory._open(), _text(path, "the path"), byref(self._handle))
        memory._lend(self)

    def close(self):
        super().close()
        self.memory._lent.pop(id(self), None)

    def load(self, sequences=None, facts=None, ignores_facts=False):
        _call("cellar_load_journal", self._open(), byref(_load_options(sequences, facts, ignores_facts)))

    def save(self, sequences=None, facts=None, notes=None, logs=None):
        """Returns how many bytes were written."""
        n = c_uint64()
        _call("cellar_save_journal", self._open(), byref(_save_options(sequences, facts, notes, logs)), byref(n))
        return n.value
