"""The fused engine in a process of its own: Ctrl-C, and what is imported."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("call", ["run", "outputs"])
@pytest.mark.parametrize("core", ["auto", "reference"])
def test_ctrl_c_is_heard_within_100_ms_after_a_whole_step(call: str, core: str) -> None:
    out = python(f"""
        import os, signal, threading, time
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

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


def test_a_handler_that_does_not_raise_lets_the_steps_go_on() -> None:
    out = python("""
        import os, signal, threading
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        n = 20_000
        engine = FusedEngine(Spec.parse("20-64-2"), Data(x=np.zeros((n, 20)), y=np.zeros((n, 2))), Settings(loss="mse"))
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        steps = np.ones(n // 4)
        for epoch in range(100):
            engine.run(Order(epoch=epoch, rows=np.arange(n), batch=4), rate=0 * steps, decay=0 * steps, dropout=steps)
            if heard:
                break
        print(heard, engine.state().step % len(steps))
    """)
    assert out.split() == ["[1]", "0"]


def test_training_and_predicting_import_no_torch() -> None:
    out = python("""
        import sys
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

        spec = Spec.parse("3+cat(2, 12)-columns(pbld)-8:gelu:batchnorm:dropout(0.1)-2")
        data = Data(x=np.zeros((9, 3)), codes=np.ones((9, 2), dtype=np.int64), y=np.zeros(9, dtype=np.int64))
        engine = FusedEngine(spec, data, Settings(loss="cross_entropy"))
        engine.run(Order(epoch=0, rows=np.arange(9), batch=3), rate=np.ones(3), decay=np.ones(3), dropout=np.ones(3))
        engine.outputs(np.arange(9))
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "sklearn", "pandas", "scipy"}))
    """)
    assert out.strip() == "[]"


def test_fit_trains_with_it_by_name_without_torch() -> None:
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
