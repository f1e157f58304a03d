"""Measure what an editor waits for: hovers while traces run, and the time from a command to its diagnostics.

Promise: a separate server process over real pipes, and a client that reads every byte; wall time, because
that is what the user notices.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from aotlens.disk_cache import FOLDER_VARIABLE
from benchmarks.harness import Table, arguments, publish
from tests.language_servers import REAL, ROOT, STAND_IN
from tests.lsp.strict_client import Json, Process, StrictClient
from tests.report.sample import MODEL

ALIASING = ROOT / "examples" / "aliasing.py"
GPT = ROOT / "examples" / "train_gpt.py"
TRACE = "workspace/executeCommand"
LONG_S = 300.0
EDITS = 200
STARTS = 7
BARE = ("-c", "from pygls.lsp.server import LanguageServer; LanguageServer('bare', '1').start_io()")
"""A server of the same library without a feature."""

Row = tuple[str, float, float, float, float]


def spread(what: str, ask: Callable[[], object], more: Callable[[int], bool]) -> Row:
    """Return the median, the 95th and 99th percentile, and the longest time, in milliseconds."""
    times: list[float] = []
    while more(len(times)):
        start = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - start))
    cuts = quantiles(times, n=100, method="inclusive")
    return what, median(times), cuts[94], cuts[98], max(times)


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Return milliseconds since the block began."""
    start = time.perf_counter()
    yield lambda: 1e3 * (time.perf_counter() - start)


def command(name: str, *arguments: Json) -> dict[str, Json]:
    return {"command": f"aotlens.{name}", "arguments": list(arguments)}


def big_report(rounds: int) -> Iterator[Row]:
    """Measure on a report of 10,000 nodes, from a fake tracing process."""

    def enough(number: int) -> bool:
        return number < rounds

    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(MODEL)
        client.request(TRACE, command("trace", uri, "big"), LONG_S)

        def hover() -> Json:
            return client.at("hover", uri, 21, 35)

        yield spread("hover", hover, enough)
        slow = client.send(TRACE, command("trace", uri, "slow"))
        yield spread("hover, a trace runs", hover, enough)
        yield spread("all inlay hints", lambda: client.in_all("inlayHint", uri), enough)
        cursor = {"start": {"line": 21, "character": 35}, "end": {"line": 21, "character": 35}}
        params = {"textDocument": {"uri": uri}, "range": cursor, "context": {"diagnostics": []}}
        yield spread("code actions", lambda: client.request("textDocument/codeAction", params), enough)
        client.command("aotlens.cancel")
        client.answer(slow)
        reading = Repeated(client, command("trace", uri, "big"), 10)
        yield spread("hover, such reports are read", hover, reading.goes_on)


class Repeated:
    """Sends one command after the other while something else is measured."""

    def __init__(self, client: StrictClient, params: dict[str, Json], times: int) -> None:
        self._client, self._params, self._left = client, params, times
        self._number: int | None = None
        self._seen = len(client.received)

    def goes_on(self, measured: int) -> bool:
        """Return True while a command runs; the next is sent as soon as the last was answered."""
        new = self._client.received[self._seen :]
        self._seen += len(new)
        if self._number is None or any(
            message.get("id") == self._number and "method" not in message for message in new
        ):
            if self._left == 0:
                return measured < 2  # at least two, for the percentiles
            self._left -= 1
            self._number = self._client.send(TRACE, self._params)
        return True


def long_file(rounds: int, folder: Path) -> Iterator[Row]:
    """Measure on a file of 20,000 lines."""
    path = folder / "long.py"
    path.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x\n" + "y = 1\n" * 20_000)
    try:
        with Process(*STAND_IN) as process:
            client = process.client
            client.initialize(ROOT)
            uri, version = client.open(path), 1

            def edit_and_hover() -> None:
                nonlocal version
                version += 1
                position = {"line": 50 * version % 20_000, "character": 0}
                client.change(
                    uri, version, {"range": {"start": position, "end": position}, "text": "z = '漢'\n"}
                )
                client.at("hover", uri, 19_000, 1)

            yield spread("edit and hover, 20,000 lines", edit_and_hover, lambda number: number < rounds)
    finally:
        path.unlink()


def traces() -> Iterator[tuple[str, float, float, float]]:
    """Measure commands end to end with the real tracing process: all, within the trace, and outside of it."""
    yield started("initialize, from the start of the process", REAL)
    yield started("the same, the first time with an editor", REAL, knows_client=False)
    yield started("the same of a pygls server without features", BARE)
    with Process(*REAL) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(ALIASING)
        yield traced(client, uri, "view_of_input", "first trace, cold")
        names = ("mutated_input", "multi_output_view", "detached_output", "input_returned", "hidden_mutation")
        warm = [traced(client, uri, name, "a tiny function, warm") for name in names]
        warm = [timing for timing in warm if timing[2]]
        yield min(warm, key=lambda timing: timing[1])
        middle = sorted(warm, key=lambda timing: timing[1])[len(warm) // 2]
        yield "the same, median of several functions", *middle[1:]
        yield traced(client, uri, names[0], "the same again, from the cache")
        gpt = client.open(GPT)
        yield traced(client, gpt, None, "examples/train_gpt.py")


def started(
    what: str, command: tuple[str, ...], *, knows_client: bool = True
) -> tuple[str, float, float, float]:
    """Return the median time from the start of a server's process to its answer to `initialize`.

    The answer is stored for the next start with a client of these capabilities, here the first one.
    """
    times_ms = []
    with TemporaryDirectory() as folder:
        for number in range(STARTS + 1):
            cache = Path(folder, "shared" if knows_client else str(number))
            with using_cache(cache), stopwatch() as since, Process(*command) as process:
                process.client.initialize(ROOT)
                times_ms.append(since())
    return what, median(times_ms[1:]), 0.0, median(times_ms[1:])


@contextmanager
def using_cache(folder: Path) -> Iterator[None]:
    """Let the processes that start in the block use a cache of their own."""
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before


def traced(client: StrictClient, uri: str, name: str | None, what: str) -> tuple[str, float, float, float]:
    with stopwatch() as since:
        answer = client.request(TRACE, command("trace", uri, name), LONG_S)
        whole = since()
    within = float(answer.get("elapsedMs", 0.0))
    return what, whole, within, whole - within


def hover_during_real_trace() -> Row:
    """Measure hovers on an example's report while the example is retraced."""
    with Process(*REAL) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(GPT)
        client.request(TRACE, command("trace", uri), LONG_S)
        lines = GPT.read_text(encoding="utf-8").splitlines()
        line = next(number for number, text in enumerate(lines) if "scores = " in text or " = q @" in text)
        verifying = Repeated(client, command("verify", uri), 1)

        def hover() -> Json:
            return client.at("hover", uri, line, len(lines[line]) - 4)

        what = "hover, examples/train_gpt.py is verified"
        return spread(what, hover, verifying.goes_on)


def main() -> None:
    options = arguments("what an editor waits for", rounds=500)
    request_rows = [
        *big_report(options.rounds),
        *long_file(EDITS, ROOT / "benchmarks"),
        hover_during_real_trace(),
    ]
    done = list(traces())
    columns = ("request", "median ms", "p95 ms", "p99 ms", "longest ms")
    note = (
        "Wall time from a request to its answer, over pipes; where none is named, a report of 10,000 nodes."
    )
    whole = ("command", "end to end ms", "the trace ms", "beyond it ms")
    note_of_commands = (
        "Wall time from a command to its answer; the diagnostics come before that. Warm: torch is loaded."
    )
    tables = (
        Table("Editor: requests", columns, tuple(request_rows), note),
        Table("Editor: traces", whole, tuple(done), note_of_commands),
    )
    publish("editor", tables)


if __name__ == "__main__":
    main()
