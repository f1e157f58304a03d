"""Run as a script: exported modules beside eager, in a process that cannot import aotlens.

`python -m tests.exports.batch FOLDER BACKEND [symbolic]`: reads names of programs from stdin, whose modules
lie in FOLDER, and prints one line for each that differs.
"""

import sys
from pathlib import Path

from tests.exports.alone import block
from tests.exports.every_program import Way, ask_the_processor, ran
from tests.programs import PROGRAMS


def main(folder: Path, backend: str, *words: str) -> None:
    block()
    if backend == "inductor":
        ask_the_processor()
    way = Way(backend, bool(words), folder)
    by_name = {program.name: program for program in PROGRAMS}
    for name in sys.stdin.read().split():
        try:
            row = ran(by_name[name], way)
        except Exception as error:  # noqa: BLE001 - reported by name, and the next program runs
            row = {"verdict": "crashed", "reason": f"{type(error).__name__}: {error}"}
        if row["verdict"] != "as eager":
            sys.stdout.write(f"differs: {name}: {row['reason']}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
