"""Make a script fit a limit that it exceeds by 25 %, and measure it before and after.

    python scripts/fit/limit.py SCRIPT

The edits are those of `aotlens fit --target LIMIT`; the peaks are predicted on fake tensors, and measured as
in `fit_table.py`.  The exit code is 1 if a peak with the edits exceeds the limit.
"""

import os
import sys
from collections.abc import Sequence

from aotlens.model.fit import Fit
from aotlens.view.quantities import human_bytes
from aotlens.view.step_memory.advice import plan_lines
from scripts.fit.advice_table import edited_copy, fit_of
from scripts.fit.cpu_table import ONE_THREAD, argv_of, calls_of, in_fork, measured, predicted

MORE = 1.25
"""The script's peak, as a multiple of the limit."""


def main() -> int:
    os.environ.update(ONE_THREAD)
    script = sys.argv[1]
    words = argv_of(script)
    before = _fit([script, *words])
    limit = int(before.step_peak_bytes / MORE)
    print(f"limit {human_bytes(limit)}")
    _print_peaks("without edits", script, words, limit)
    fit = _fit(["--target", f"{limit}B", script, *words])
    assert fit.plan is not None
    print("\n" + "\n".join(plan_lines(fit.plan)) + "\n")
    with edited_copy(script, fit.plan.edits) as copy:
        return _print_peaks("with edits", copy, words, limit)


def _fit(words: Sequence[str]) -> Fit:
    fit, problem = fit_of(words)
    if fit is None:
        raise SystemExit(problem)
    return fit


def _print_peaks(what: str, script: str, words: Sequence[str], limit: int) -> int:
    """Predict and measure the peak; return 1 if it exceeds the limit."""
    fit, problem = in_fork(lambda: predicted(script, words, is_real=False))
    if problem:
        raise SystemExit(problem)
    size_bytes, problem = in_fork(lambda: measured(script, words, *calls_of(fit)))
    if problem:
        raise SystemExit(problem)
    is_above = max(fit.step_peak_bytes, size_bytes) > limit
    where = "above" if is_above else "below"
    sizes = f"predicted {human_bytes(fit.step_peak_bytes)}, measured {human_bytes(size_bytes)}"
    print(f"{what}: {sizes}, {where} the limit")
    return int(is_above)


if __name__ == "__main__":
    sys.exit(main())
