"""Time limits for scripts that never end, on machines of any speed."""

from collections.abc import Callable

from aotlens.worker.protocol import Answer

LIMITS_S = (0.5, 4.0, 40.0)


def begun(run: Callable[[float], Answer]) -> tuple[Answer, float]:
    """The answer of a script that outlasts its limit, and that limit.

    It counts from the start of the process: on a busy machine the shortest may pass before the script begins,
    and then no line of it is named.
    """
    for limit_s in LIMITS_S:
        got = run(limit_s)
        if got.failure is None or got.failure.traceback:
            break
    return got, limit_s
