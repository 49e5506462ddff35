"""test_cellar.py: the Python module against the real library.

    CELLAR_LIBRARY=build/libcellar.so python3 tests/test_cellar.py       (tests/python.sh does it, with and without numpy)

The layouts of its structs are compared with a C compiler's; attention with a softmax computed here; lifetimes by
trying to break them. Prints "N passed, N failed, N skipped" at the end.
"""

import array
import gc
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(root, "python"))
if os.environ.get("WITHOUT_NUMPY"):
    sys.modules["numpy"] = None

import cellar  # noqa: E402

HEADS, SIZE = 2, 8


def memory(n_cells=64, **options):
    layer = cellar.Layer(n_heads=HEADS, n_kv_heads=1, k_size=SIZE, v_size=SIZE, k_type=cellar.Type.F32,
                         v_type=cellar.Type.F32)
    return cellar.Memory([layer], n_cells, **options)


def numbers(n, seed):
    """n numbers in [-1, 1)."""
    result = array.array("f")
    for i in range(n):
        seed = (seed * 1103515245 + 12345) % 2**31
        result.append(seed / 2**30 - 1)
    return result


def read(m, tokens, seq=0, seed=1):
    """Read tokens at the end of a sequence; returns (k, v, q, out) of a batch of one micro-batch."""
    n = len(tokens)
    k, v, q = numbers(n * SIZE, seed), numbers(n * SIZE, seed + 1), numbers(n * HEADS * SIZE, seed + 2)
    with m.begin(tokens, seq=seq) as step:
        for ubatch in step:
            ubatch.store(0, k, v)
            out = ubatch.attend(0, q)
    return k, v, q, out


def flat(x):
    return array.array("f", memoryview(x).cast("B").tobytes()) if not isinstance(x, array.array) else x


class Structs(unittest.TestCase):
    def test_layouts_are_those_of_c(self):
        compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
        if not compiler:
            self.skipTest("no C compiler")
        pairs = dict(cellar_error=cellar._Error, cellar_allocator=cellar._Allocator, cellar_workers=cellar._Workers,
                     cellar_rope=cellar._Rope, cellar_window=cellar._Window, cellar_buckets=cellar._Buckets,
                     cellar_layer=cellar._Layer, cellar_config=cellar._Config, cellar_point=cellar._Point,
                     cellar_batch=cellar._Batch, cellar_segment=cellar._Segment, cellar_ubatch=cellar._Ubatch,
                     cellar_states=cellar._States, cellar_sequence_info=cellar._SequenceInfo,
                     cellar_sizes=cellar._Sizes, cellar_statistics=cellar._Statistics, cellar_run=cellar._Run,
                     cellar_cell=cellar._Cell, cellar_note=cellar._Note, cellar_log=cellar._Log,
                     cellar_save_options=cellar._SaveOptions, cellar_load_options=cellar._LoadOptions,
                     cellar_session_info=cellar._SessionInfo, cellar_session_sequence=cellar._SessionSequence,
                     cellar_writer=cellar._Writer)
        wanted, lines = [], []
        for name, kind in pairs.items():
            wanted.append(f"{name} {cellar.sizeof(kind)}")
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            for field, *_ in kind._fields_:
                entry = getattr(kind, field)
                field = field.rstrip("_")
                wanted.append(f"{name}.{field} {entry.offset} {entry.size}")
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f'sizeof((({name} *)0)->{field}));')
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            with open(source, "w") as file:
                file.write("#include <cellar.h>\n#include <stdio.h>\nint main(void) {" + "\n".join(lines) + "}")
            subprocess.run([compiler, "-I" + os.path.join(root, "include"), source, "-o", program], check=True)
            found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
        self.assertEqual(wanted, found)

    def test_defaults_are_those_of_the_header(self):
        # A memory of defaults is what the C program of the header makes: the library checks every field.
        self.assertEqual(cellar.version().split(".")[0], "0")
        with memory() as m:
            self.assertEqual(m.statistics.n_cells, 64)


class Steps(unittest.TestCase):
    def test_attention_is_a_softmax(self):
        with memory() as m:
            k, v, q, out = read(m, [1, 2, 3, 4])
            out = flat(out)
            for t in range(4):
                for h in range(HEADS):
                    query = q[(t * HEADS + h) * SIZE:][:SIZE]
                    weights = [math.exp(sum(a * b for a, b in zip(query, k[j * SIZE:][:SIZE])) / math.sqrt(SIZE))
                               for j in range(t + 1)]
                    for i in range(SIZE):
                        expected = sum(w * v[j * SIZE + i] for j, w in enumerate(weights)) / sum(weights)
                        self.assertAlmostEqual(out[(t * HEADS + h) * SIZE + i], expected, places=5)

    def test_arrays_have_shapes(self):
        with memory() as m:
            out = read(m, [1, 2, 3])[3]
            self.assertEqual(tuple(out.shape), (3, HEADS, SIZE))
            k, v = m[0].rows(0, 1, 2)
            self.assertEqual(tuple(k.shape), (2, 1, SIZE))
            self.assertEqual(flat(v), numbers(3 * SIZE, 2)[SIZE:])

    def test_an_exception_aborts(self):
        with memory() as m:
            with self.assertRaises(ZeroDivisionError):
                with m.begin([1, 2]):
                    1 / 0
            self.assertEqual(len(m[0]), 0)
            with self.assertRaises(cellar.Invalid):
                with m.begin([1, 2]):
                    pass  # nothing stored: the commit is refused, and the step aborted
            read(m, [1])
            self.assertEqual(len(m[0]), 1)

    def test_a_step_that_is_dropped_is_aborted(self):
        with memory() as m:
            step = m.begin([1])
            with self.assertRaises(cellar.Busy):
                m[0].fork(1) and m.clear()
            del step
            gc.collect()
            read(m, [1])

    def test_an_ended_step_is_refused(self):
        with memory() as m:
            step = m.begin([1])
            ubatch = step[0]
            step.abort()
            for call in (step.commit, lambda: len(step), lambda: ubatch.confirm(0), lambda: ubatch.store(0, b"", b"")):
                self.assertRaises(cellar.Invalid, call)

    def test_wrong_arrays_are_refused(self):
        with memory() as m, m.begin([1, 2]) as step:
            ubatch = step[0]
            good = numbers(2 * SIZE, 1)
            for bad in (numbers(2 * SIZE - 1, 1), array.array("d", good), list(good), None, b"x",
                        memoryview(numbers(4 * SIZE, 1))[::2]):
                self.assertRaises(cellar.Invalid, ubatch.store, 0, bad, good)
            self.assertRaises(cellar.Invalid, ubatch.store, 7, good, good)
            self.assertRaises(cellar.Invalid, ubatch.store, 0, good)  # no v
            frozen = memoryview(bytes(2 * HEADS * SIZE * 4)).cast("f")
            ubatch.store(0, memoryview(good.tobytes()).cast("f"), good)  # read-only is enough to read
            self.assertRaises(cellar.Invalid, ubatch.attend, 0, numbers(2 * HEADS * SIZE, 1), frozen)
            ubatch.attend(0, frozen)

    def test_positions_and_sequences_of_a_batch(self):
        with memory(split=1) as m:
            with m.begin([5, 6, 7], seqs=[[0, 3], [0, 3], 3], positions=[4, 5, 6]) as step:
                self.assertEqual(step[0].positions, [4, 5, 6])
                self.assertEqual(step[0].indices, [0, 1, 2])
                self.assertEqual(step[0].segments, [(0, 0, 2), (3, 2, 1)])
                step[0].store(0, numbers(3 * SIZE, 1), numbers(3 * SIZE, 1))
            self.assertEqual((m[0].info.pos_max, m[3].info.pos_max), (5, 6))
            for bad in (dict(seqs=[0]), dict(positions=[1]), dict(checkpoints=[True] * 5), dict(seqs=[2**31] * 2),
                        dict(positions=[1.5, 2])):
                self.assertRaises(cellar.Invalid, m.begin, [1, 2], **bad)
            self.assertRaises(cellar.Invalid, m.begin, [2**40])
            self.assertRaises(cellar.Invalid, m.begin, [])


class Sequences(unittest.TestCase):
    def test_a_fork_shares(self):
        with memory() as m:
            read(m, [1, 2, 3])
            fork = m[0].fork(9)
            self.assertEqual((len(fork), m.statistics.n_used, m.statistics.n_shared), (3, 3, 3))
            fork.remove(1)
            m[0].shift(0, -1, 5)
            self.assertEqual((len(fork), len(m[0])), (1, 8))
            self.assertEqual(m[0].rewind(6), 6)
            self.assertTrue(m[0].can_continue(6))
            self.assertFalse(m[0].can_continue(20))
            m[9].keep()
            self.assertEqual(len(m[0]), 0)
            m.clear()
            m.check()

    def test_refusals_have_classes(self):
        with memory(8) as m:
            read(m, [1] * 6)
            with self.assertRaises(cellar.Full) as caught:
                m.begin([1] * 5)
            self.assertEqual((caught.exception.status, caught.exception.at), (cellar.Status.FULL, 3))
            self.assertIn("3", str(caught.exception))
            self.assertEqual(m[0].shift_context(2), 2)
            with self.assertRaises(cellar.Refused):
                m[0].shift(0, 1, 1)
            with self.assertRaises(ValueError):
                m[0].remove(5, 2)
            for name in ("nonsense", "n_layers", "allocator"):
                self.assertRaises(cellar.Invalid, memory, **{name: 1})
            self.assertRaises(cellar.Invalid, memory, 2**33)
            self.assertRaises(cellar.Invalid, memory, budget_bytes=1)
            self.assertRaises(cellar.Invalid, cellar.Layer, 1, 1, 8, 8, nonsense=1)
            self.assertRaises(cellar.Invalid, cellar.Layer, 1, 1, 8, 8, sinks=[1.0, 2.0])
            self.assertRaises(cellar.Invalid, m.__getitem__, -2**40)
            self.assertRaises(cellar.Invalid, m[-1].remove)

    def test_a_snapshot_is_a_table(self):
        with memory() as m:
            read(m, [11, 12, 13])
            m[0].fork(1)
            snapshot = m.snapshot()
            m.clear()
            first = snapshot.runs[0]
            length = first["len"] if hasattr(first, "dtype") else first.len
            self.assertEqual((len(snapshot.runs), length, len(snapshot.cells)), (2, 3, 3))
            tokens = [c["token"] if hasattr(c, "dtype") else c.token for c in snapshot.cells]
            self.assertEqual(list(map(int, tokens)), [11, 12, 13])
            self.assertIn("+++", str(snapshot))


class States(unittest.TestCase):
    def make(self):
        return cellar.Memory([cellar.Layer(kind="recurrent", states=[4])], 32, n_sequences=2)

    def count(self, m, n):
        with m.begin([0] * n) as step:
            ubatch = step[0]
            source, targets = ubatch.states(0)
            before = list(m.state(source, 0)) if source is not None else [0.0] * 4
            for target, after in targets:
                ubatch.write_state(target, 0, 0, array.array("f", [x + after for x in before]))
            self.assertRaises(cellar.Invalid, ubatch.write_state, 99, 0, 0, array.array("f", before))
            ubatch.confirm(0)
        return targets[-1][0]

    def test_states_are_read_only_views(self):
        with self.make() as m:
            state = self.count(m, 3)
            state = self.count(m, 2)
            view = m.state(state, 0)
            self.assertEqual(list(view), [5.0] * 4)
            with self.assertRaises((TypeError, ValueError)):
                view[0] = 1.0
            self.assertRaises(BufferError, m.close)
            self.assertRaises(BufferError, m.resize, 64)
            self.assertRaises(cellar.NotFound, m.state, 99, 0)
            self.assertRaises(cellar.Invalid, m.state, state, 0, 1)
            del view

    def test_a_view_keeps_its_memory_alive(self):
        m = self.make()
        view = m.state(self.count(m, 3), 0)
        del m
        gc.collect()
        self.assertEqual(list(view), [3.0] * 4)


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "tale.cellar")
        self.addCleanup(self.folder.cleanup)

    def test_a_session_goes_on_elsewhere(self):
        with memory() as m, memory(128) as other, memory(128) as third:
            read(m, [1, 2, 3])
            m[0].fork(4)
            m.save(self.path, facts={"weights": b"\x01\x00"}, notes={"title": "Tale", "empty": ""},
                   logs={0: [1, 2, 3]})
            with cellar.Session(self.path) as session:
                session.check()
                self.assertEqual(session.facts, {"weights": b"\x01\x00"})
                self.assertEqual(session.notes, {"title": b"Tale", "empty": b""})
                tokens = session.sequences[0]["tokens"]
                self.assertEqual(list(tokens), [1, 2, 3])
                self.assertRaises(BufferError, session.close)
                del tokens
                gc.collect()
                self.assertRaises(cellar.Mismatch, other.load, session)
                self.assertRaises(cellar.NotFound, other.load, session, [77], ignores_facts=True)
                other.load(session, {0: 50}, facts={"weights": b"\x01\x00"})
            self.assertEqual((len(other[50]), len(other[0])), (3, 0))
            self.assertEqual(flat(other[50].rows(0, 0, 3)[0]), flat(m[0].rows(0, 0, 3)[0]))
            third.load(cellar.Session(m.save_bytes(sequences=[4])))
            self.assertEqual((len(third[0]), len(third[4])), (0, 3))

    def test_bad_sessions_are_refused(self):
        with memory() as m:
            read(m, [1, 2, 3])
            good = m.save_bytes()
            self.assertRaises(cellar.Corrupt, cellar.Session, good[:-9])
            with self.assertRaises(cellar.Corrupt):
                bad = bytearray(good)
                bad[len(bad) - 40] ^= 1
                m.load(cellar.Session(bytes(bad)))
                cellar.Session(bytes(bad)).check()
            self.assertRaises(cellar.NotFound, cellar.Session, self.path)
            self.assertRaises(cellar.Invalid, cellar.Session, "a\0b")
            self.assertRaises(cellar.Invalid, m.save, self.path, facts={"a\0b": ""})
            self.assertRaises(cellar.NotFound, m.save, self.path, sequences=[5])
            self.assertRaises(LookupError, m.load, self.path)

    def test_a_journal_appends(self):
        m = memory()
        read(m, [1] * 40)
        journal = cellar.Journal(m, self.path)
        first = journal.save()
        read(m, [1], seed=9)
        self.assertLess(journal.save(), first)
        self.assertRaises(BufferError, m.close)
        journal.close()
        with memory() as other, cellar.Journal(other, self.path) as again:
            again.load()
            self.assertEqual(len(other[0]), 41)
        m.close()

    def test_what_is_closed_is_refused(self):
        m = memory()
        m.close()
        m.close()
        for call in (m.check, lambda: m[0].info, lambda: m.begin([1]), m.snapshot, m.save_bytes):
            self.assertRaises(cellar.Invalid, call)


class Library(unittest.TestCase):
    def run_with(self, **environment):
        return subprocess.run([sys.executable, "-c", "import cellar; print(cellar.version())"],
                              cwd=os.path.join(root, "python"), capture_output=True, text=True,
                              env={**os.environ, **environment})

    def test_the_named_library_is_used_and_no_other(self):
        self.assertEqual(self.run_with().stdout.strip(), cellar.version())
        missing = self.run_with(CELLAR_LIBRARY="/nowhere/libcellar.so")
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("CELLAR_LIBRARY names it", missing.stderr)
        other = self.run_with(CELLAR_LIBRARY="libm.so.6")
        self.assertIn("no usable libm.so.6", other.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1, testRunner=unittest.TextTestRunner(stream=sys.stdout)).result
    n_failed, n_skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - n_failed - n_skipped} passed, {n_failed} failed, {n_skipped} skipped")
    sys.exit(1 if n_failed else 0)
