"""Write the logs of several releases of torch that `tests/trace/test_releases.py` reads.

    python scripts/trace/release_logs.py ENVIRONMENTS tests/trace/releases            every release there
    python scripts/trace/release_logs.py ENVIRONMENTS tests/trace/releases 2.6 2.8    some of them

ENVIRONMENTS has a Python environment for each release, in a folder `torch-RELEASE` with torch alone; those of
scripts/release/torch_versions.py (`torch-RELEASE-python-VERSION`) serve too. The logs are anonymised, and
lack the events that say how long a phase took.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from scripts.trace.logs import BULKY, LIMIT_S, PROGRAMS, packed_log, places

NAMES = ("breaks", "dynamic")
"""Graph breaks, aliases, and recompilations for values and for sizes."""
LEFT_OUT = (*BULKY, b"chromium_event")


def write(release: str, environment: Path, name: str, fixtures: Path) -> None:
    """Run a program with that torch, and store its log.  Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [str(environment / "bin" / "python"), str(PROGRAMS / f"{name}.py"), "aot_eager"],
            env=os.environ | {"TORCH_TRACE": folder, "OMP_NUM_THREADS": "1"},
            cwd=PROGRAMS,
            timeout=LIMIT_S,
            check=True,
            stdout=sys.stderr,
        )
        (log,) = Path(folder).glob("*.log")
        packed = packed_log(log, places(environment), LEFT_OUT)
    target = fixtures / release
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.log.gz").write_bytes(packed)
    print(f"{release}/{name}: {len(packed):,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", type=Path)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("releases", nargs="*")
    options = parser.parse_args()
    environments = options.environments.resolve()
    known = {path.name.split("-")[1]: path for path in sorted(environments.glob("torch-*"))}
    for release in options.releases or known:
        shutil.rmtree(options.fixtures / release, ignore_errors=True)
        for name in NAMES:
            write(release, known[release], name, options.fixtures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
