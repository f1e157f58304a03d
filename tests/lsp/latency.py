"""Prints how long the language server takes: `python -m tests.lsp.latency`.  Nothing is asserted."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.lsp.conftest import REAL, ROOT, STAND_IN
from tests.lsp.stand_in import BIG
from tests.lsp.strict_client import Process
from tests.report.sample import MODEL

ROUNDS = 500


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@contextmanager
def timed(what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    say(f"{what}: {(time.perf_counter() - start) * 1000:.0f} ms")


def spread(what: str, ask: Callable[[], Any]) -> None:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ask()
        times.append((time.perf_counter() - start) * 1000)
    cuts = statistics.quantiles(times, n=100)
    say(f"{what}: median {cuts[49]:.1f} ms, p95 {cuts[94]:.1f} ms, p99 {cuts[98]:.1f} ms")


def load() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(MODEL)
        with timed(f"from command to diagnostics, report of {2 * BIG} nodes"):
            client.command("aotlens.trace", uri, "big")
        spread("hover", lambda: client.at("hover", uri, 21, 35))
        slow = client.send(
            "workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "slow"]}
        )
        spread("hover while a trace runs", lambda: client.at("hover", uri, 21, 35))
        spread("all inlay hints", lambda: client.in_all("inlayHint", uri))
        client.command("aotlens.cancel")
        client.answer(slow)
        traces = [
            client.send("workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "big"]})
            for _ in range(3)
        ]
        spread("hover while big reports are read", lambda: client.at("hover", uri, 21, 35))
        for number in traces:
            client.answer(number)


def real() -> None:
    start = time.perf_counter()
    with Process(*REAL) as process:
        client = process.client
        client.initialize(ROOT)
        say(f"initialize, from the start of the process: {(time.perf_counter() - start) * 1000:.0f} ms")
        uri = client.open(ROOT / "examples" / "aliasing.py")
        with timed("first trace of a tiny function, cold"):
            client.command("aotlens.trace", uri, "view_of_input")
        for name in ("mutated_input", "multi_output_view", "detached_output"):
            with timed(f"trace of {name}, warm, end to end"):
                client.command("aotlens.trace", uri, name)
        with timed("the same again, from the cache"):
            client.command("aotlens.trace", uri, name)


if __name__ == "__main__":
    real()
    load()
