"""The fused engine in a separate process: Ctrl-C, forks, memory and thread limits, and imports."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

RESTORE_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Background processes of a script ignore SIGINT, and their children inherit this. So the default is restored."""


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RESTORE_SIGINT + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("call", ["run", "outputs"])
@pytest.mark.parametrize("core", ["auto", "reference"])
def test_ctrl_c_ends_training_within_100_ms_after_a_complete_step(call: str, core: str) -> None:
    out = python(f"""
        import os, signal, threading, time
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        n, batch = 100_000, 8
        x = np.random.default_rng(0).normal(size=(n, 20))
        data = Data(x=x, y=x[:, :2])

        def made():
            return FusedEngine(Spec.parse("20-128-128-2"), data, Settings(loss="mse"), core={core!r})

        def run(engine, steps):
            ones = np.ones(steps)
            order = Order(epoch=0, rows=np.arange(steps * batch), batch=batch)
            engine.run(order, rate=0.001 * ones, decay=0 * ones, dropout=ones)

        times = []
        for _ in range(3):
            engine, sent = made(), []

            def send():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            threading.Timer(0.2, send).start()
            try:
                while True:
                    engine.outputs(np.arange(n)) if {call!r} == "outputs" else run(engine, n // batch)
            except KeyboardInterrupt:
                times.append(time.perf_counter() - sent[0])
            again, taken = made(), engine.state().step
            for start in range(0, taken, n // batch):
                run(again, min(n // batch, taken - start))
            assert again.state().equals(engine.state())
        print(min(times))
    """)
    assert float(out) < 0.1


@pytest.mark.parametrize("call", ["run", "gradients", "outputs", "predict"])
def test_ctrl_c_interrupts_a_long_step(call: str) -> None:
    """A step of 0.2 TFLOP takes seconds. The interrupted step is undone, and the engine can continue."""
    out = python(f"""
        import os, signal, threading, time
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.engines.fused_engine import PredictProgram
        from multilayer.spec.spec import Spec

        n, one = 16_000, np.ones(1)
        spec = Spec.parse("784-1024:batchnorm-1024-10")
        x = np.random.default_rng(0).normal(size=(n, 784)).astype(np.float32)
        engine = FusedEngine(spec, Data(x=x, y=x[:, :10].copy()), Settings(loss="mse"))
        program = PredictProgram(spec, engine.state().parameters | engine.state().buffers)

        def step(batch):
            order = Order(epoch=0, rows=np.arange(batch), batch=batch)
            return engine.run(order, rate=0.001 * one, decay=0 * one, dropout=one)

        calls = {{
            "run": lambda: step(n),
            "gradients": lambda: engine.gradients(np.arange(n), epoch=0),
            "outputs": lambda: [engine.outputs(np.arange(n)) for _ in range(4)],
            "predict": lambda: program.outputs(np.broadcast_to(x[:1], (4 * n, 784)).copy()),
        }}
        step(64)
        before, late = engine.state(), []
        started = time.perf_counter()
        calls[{call!r}]()  # a complete call, to measure its time and to allocate its memory
        whole, done = time.perf_counter() - started, engine.state()
        engine.load(before)
        for share in (0.2, 0.4, 0.6, 0.8):
            sent = []

            def send():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(share * whole, send)
            timer.start()
            try:
                calls[{call!r}]()
                timer.cancel()
                timer.join()
            except KeyboardInterrupt:
                late.append(time.perf_counter() - sent[0])
            # The step did not start, or it completed before the signal arrived.
            assert engine.state().equals(before) or engine.state().equals(done)
            engine.load(before)
        after = step(64)
        again = FusedEngine(spec, engine.data, Settings(loss="mse"))
        again.load(before)
        engine = again
        assert (step(64).loss == after.loss).all()
        print(len(late), min(late), whole)
    """)
    interrupted, soonest, whole = out.split()
    assert int(interrupted) >= 1
    assert float(soonest) < float(whole) / 5  # bench/interrupts.py measures milliseconds


def test_a_second_ctrl_c_ends_an_ensemble_at_once() -> None:
    """Only the main thread receives signals. It stops the threads of the members."""
    out = python("""
        import os, signal, threading, time
        import numpy as np
        import multilayer as ml

        x = np.random.default_rng(0).normal(size=(8000, 784)).astype(np.float32)
        how = {"ensemble": 4, "engine": "fused", "batch_size": 8000, "epochs": 50, "quiet": True, "validation": None}
        sent = []

        def send():
            for _ in range(2):
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)

        def each_epoch(now):
            began.append(time.perf_counter())
            if now.epoch == 1:
                threading.Timer(0.3 * (began[1] - began[0]), send).start()
            return False

        began = []
        try:
            ml.fit("784-1024-1024-1", (x, x[:, :1]), each_epoch=each_epoch, **how)
        except KeyboardInterrupt:
            print((time.perf_counter() - sent[1]) / (began[1] - began[0]))
    """)
    assert float(out) < 0.5  # as a share of a step


@pytest.mark.parametrize("call", ["run", "predict"])
@pytest.mark.parametrize("threads", [1, 2])
def test_python_can_exit_while_a_daemon_thread_trains(call: str, threads: int) -> None:
    out = python(f"""
        import threading, time
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.engines.fused_engine import PredictProgram
        from multilayer.spec.spec import Spec

        x = np.zeros((6000, 784), np.float32)
        spec, steps = Spec.parse("784-256-128-10"), 20_000
        engine = FusedEngine(spec, Data(x=x, y=x[:, :10].copy()), Settings(loss="mse"), threads={threads})
        program = PredictProgram(spec, engine.state().parameters, threads={threads})
        order, ones = Order(epoch=0, rows=np.tile(np.arange(6000), 107)[: 32 * steps], batch=32), np.ones(steps)
        many = np.broadcast_to(x[:1], (400_000, 784)).copy()
        calls = {{
            "run": lambda: engine.run(order, rate=0 * ones, decay=0 * ones, dropout=ones),
            "predict": lambda: program.outputs(many),
        }}
        threading.Thread(target=calls[{call!r}], daemon=True).start()
        time.sleep(0.1)
        print("the main thread ends")
    """)
    assert out == "the main thread ends\n"


def test_an_ensemble_runs_in_a_forked_child() -> None:
    out = python("""
        import os, time
        import numpy as np
        from multilayer.nn import losses
        from multilayer.engines import Settings
        from multilayer.data.batches import Data
        from multilayer.engines.ensemble import Ensemble, Member
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        x = np.random.default_rng(0).normal(size=(64, 20)).astype(np.float32)
        data, rows = Data(x=x, y=x[:, :2].copy()), np.arange(64)
        engines = [FusedEngine(Spec.parse("20-8-2"), data, Settings(loss="mse", seed=i), threads=1) for i in range(2)]
        members = [Member(engine=engine, rows=rows, seed=i) for i, engine in enumerate(engines)]
        ensemble = Ensemble(members, losses.get("mse"), threads=2)
        expected = ensemble.outputs(rows)
        child = os.fork()
        if not child:
            good = np.array_equal(ensemble.outputs(rows), expected)
            ensemble.close()
            os._exit(0 if good else 1)
        for _ in range(300):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            time.sleep(0.1)
        else:
            os.kill(child, 9)
        print(ended == child, status)
        ensemble.close()
    """)
    assert out.split() == ["True", "0"]


def test_ctrl_c_works_in_a_child_forked_by_another_thread() -> None:
    """The main thread of the child is the thread that forked."""
    out = python("""
        import os, signal, threading
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        x = np.zeros((1000, 64), np.float32)
        engine = FusedEngine(Spec.parse("64-256-256-2"), Data(x=x, y=x[:, :2].copy()), Settings(loss="mse"), threads=1)

        def forked():
            child = os.fork()
            if child:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                return
            ones, rows = np.ones(50_000), np.tile(np.arange(1000), 500)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                engine.run(Order(epoch=0, rows=rows, batch=10), rate=0 * ones, decay=0 * ones, dropout=ones)
            except KeyboardInterrupt:
                os._exit(3)
            os._exit(4)

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        thread = threading.Thread(target=forked)
        thread.start()
        thread.join()
    """)
    assert out.split() == ["3"]


def test_concurrent_calls_are_refused_and_change_nothing() -> None:
    out = python("""
        import threading
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        x = np.random.default_rng(0).normal(size=(6400, 64)).astype(np.float32)
        data, how, ones = Data(x=x, y=x[:, :2].copy()), Settings(loss="mse", statistics_every=1), np.ones(2000)
        engine, alone = (FusedEngine(Spec.parse("64-256-256-2"), data, how, threads=1) for _ in range(2))
        order = Order(epoch=0, rows=np.tile(np.arange(6400), 10), batch=32)
        before, found = engine.state(), []

        def run(engine):
            found.append(engine.run(order, rate=1e-3 * ones, decay=0 * ones, dropout=ones))

        run(alone)
        thread = threading.Thread(target=run, args=[engine])
        thread.start()
        busy = False
        while not busy:
            try:
                engine._core.step
            except RuntimeError:
                busy = True
        refused = []
        one, first = np.ones(1), Order(epoch=0, rows=np.arange(32), batch=32)
        for call in (
            lambda: engine.run(first, rate=one, decay=one, dropout=one),
            lambda: engine.load(before),
            engine.state,
            lambda: setattr(engine._core, "step", 7),
        ):
            try:
                call()
            except RuntimeError as error:
                refused.append(str(error))
        print(thread.is_alive(), len(refused))
        print(set(refused) == {"the engine is already running: wait until it ends"})
        thread.join()
        print([one.place for one in found[1].statistics] == list(range(2000)), engine.state().equals(alone.state()))
    """)
    assert out.split() == ["True", "4", "True", "True", "True"]


def test_signal_handlers_may_predict_but_not_train_with_the_interrupted_engine() -> None:
    out = python("""
        import os, signal, threading
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.engines.fused_engine import PredictProgram
        from multilayer.spec.spec import Spec

        x = np.random.default_rng(0).normal(size=(100_000, 64)).astype(np.float32)
        spec, ones = Spec.parse("64-256-256-2"), np.ones(100)
        engine = FusedEngine(spec, Data(x=x, y=x[:, :2].copy()), Settings(loss="mse"), threads=2)
        small = PredictProgram(spec, engine.state().parameters, threads=2)
        wide = Spec.parse("64-2048-2048-2")
        large = PredictProgram(wide, FusedEngine(wide, engine.data, Settings(loss="mse")).state().parameters, threads=1)
        expected, answers = small.outputs(x), []

        def handler(*_):
            try:
                engine.outputs(np.arange(10))
            except RuntimeError as error:
                answers.append(str(error))
            answers.append(large.outputs(x[:50]).shape)
            answers.append((small.outputs(x[:200]) == expected[:200]).all())

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.1)
        found = [small.outputs(x) for _ in range(6)]
        engine.run(Order(epoch=0, rows=np.arange(100_000), batch=1000), rate=0.001 * ones, decay=0 * ones, dropout=ones)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(all((one == expected).all() for one in found))
        print("the engine is already running: wait until it ends" in answers)
        print(len(answers) > 4, all(one is not False for one in answers))
    """)
    assert out.split() == ["True"] * 4


def test_an_engine_works_after_running_out_of_memory() -> None:
    """A batch that is too large for the memory is refused. A later, smaller batch has the usual result."""
    out = python("""
        import resource
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        n, one = 200_000, np.ones(1)
        data = Data(x=np.random.default_rng(0).normal(size=(n, 20)).astype(np.float32), y=np.zeros((n, 2)))
        spec = Spec.parse("20-256-256-2")

        def step(engine, batch):
            order = Order(epoch=0, rows=np.arange(batch), batch=batch)
            return engine.run(order, rate=0.001 * one, decay=0 * one, dropout=one)

        engine, other = (FusedEngine(spec, data, Settings(loss="mse"), threads=2) for _ in range(2))
        step(engine, 32), step(other, 32)
        taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 200_000_000, resource.RLIM_INFINITY))
        for call in (lambda: step(engine, n), lambda: engine.gradients(np.arange(n), epoch=0)):
            try:
                call()
            except MemoryError:
                print("refused")
        print(engine.outputs(np.arange(40)).shape)
        step(engine, 32), step(other, 32)
        print(engine.state().equals(other.state()))
    """)
    assert out.split("\n")[:4] == ["refused", "refused", "(40, 2)", "True"]


def test_training_works_if_the_system_refuses_threads() -> None:
    out = python("""
        import resource, threading
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.engines.fused_engine import PredictProgram
        from multilayer.spec.spec import Spec

        data = Data(x=np.random.default_rng(0).normal(size=(512, 64)).astype(np.float32), y=np.zeros((512, 2)))
        spec, ones, many = Spec.parse("64-256-256-2"), np.ones(2), np.tile(data.x, (10, 1))

        def trained(threads):
            engine = FusedEngine(spec, data, Settings(loss="mse"), threads=threads)
            engine.run(Order(epoch=0, rows=np.arange(512), batch=256), rate=0.001 * ones, decay=0 * ones, dropout=ones)
            program = PredictProgram(spec, engine.state().parameters, threads=threads)
            return engine.state(), program.outputs(many)

        expected = trained(1)
        # There is no memory for the stack of another thread, so no thread can start.
        taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 7_000_000, resource.RLIM_INFINITY))
        try:
            threading.Thread(target=int).start()
            print("a thread started")
        except RuntimeError:
            state, z = trained(8)
            print(state.equals(expected[0]), (z == expected[1]).all())
    """)
    assert out.split() == ["True", "True"]


def test_training_continues_after_a_signal_handler_that_does_not_raise() -> None:
    out = python("""
        import os, signal, threading
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        received = []
        signal.signal(signal.SIGINT, lambda *_: received.append(1))
        n = 20_000
        engine = FusedEngine(Spec.parse("20-64-2"), Data(x=np.zeros((n, 20)), y=np.zeros((n, 2))), Settings(loss="mse"))
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        steps = np.ones(n // 4)
        for epoch in range(100):
            engine.run(Order(epoch=epoch, rows=np.arange(n), batch=4), rate=0 * steps, decay=0 * steps, dropout=steps)
            if received:
                break
        print(received, engine.state().step % len(steps))
    """)
    assert out.split() == ["[1]", "0"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_handler_may_predict_during_a_prediction(threads: int) -> None:
    """The handler runs on the same thread in the middle of a block, while the memory of the block is in use."""
    out = python(f"""
        import os, signal, threading
        import numpy as np
        from multilayer.engines.fused_engine import PredictProgram
        from multilayer.spec.initialization import initialise
        from multilayer.spec.spec import Spec

        spec = Spec.parse("1024-(3000:relu)*4-10")
        program = PredictProgram(spec, initialise(spec, "auto", seed=0), threads={threads})
        x = np.random.default_rng(0).normal(size=(48, 1024)).astype(np.float32)
        expected, within = program.outputs(x, None), []
        signal.signal(signal.SIGINT, lambda *_: within.append(program.outputs(x[:7], None)))
        found = []
        while len(within) < 3:
            timer = threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            found.append(program.outputs(x, None))
            timer.join()
        print(all((z == expected).all() for z in found), all((z == expected[:7]).all() for z in within))
    """)
    assert out.split() == ["True", "True"]


def test_training_and_predicting_import_no_torch() -> None:
    out = python("""
        import sys
        import numpy as np
        from multilayer.engines import Order, Settings
        from multilayer.data.batches import Data
        from multilayer.engines.fused_engine import FusedEngine
        from multilayer.spec.spec import Spec

        spec = Spec.parse("3+cat(2, 12)-columns(pbld)-8:gelu:batchnorm:dropout(0.1)-2")
        data = Data(x=np.zeros((9, 3)), codes=np.ones((9, 2), dtype=np.int64), y=np.zeros(9, dtype=np.int64))
        engine = FusedEngine(spec, data, Settings(loss="cross_entropy"))
        engine.run(Order(epoch=0, rows=np.arange(9), batch=3), rate=np.ones(3), decay=np.ones(3), dropout=np.ones(3))
        engine.outputs(np.arange(9))
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "sklearn", "pandas", "scipy"}))
    """)
    assert out.strip() == "[]"


def test_fit_with_the_fused_engine_imports_no_torch() -> None:
    out = python("""
        import sys
        import numpy as np
        import multilayer as ml

        x = np.random.default_rng(0).normal(size=(300, 4))
        how = {"engine": "fused", "epochs": 10, "quiet": True, "learning_rate": 0.01, "augment": "noise(0.1)"}
        runs = [ml.fit(None, (x, (x[:, 0] > 0).astype(int)), **how) for _ in range(2)]
        print(runs[0].metrics["accuracy"] > 0.9, runs[0].metrics == runs[1].metrics, "torch" in sys.modules)
    """)
    assert out.split() == ["True", "True", "False"]
