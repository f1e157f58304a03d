"""Generate the logs that torch writes for the programs in tests/trace/programs, and those that tests read.

    python scripts/trace/logs.py OUT                       every program, with aot_eager
    python scripts/trace/logs.py OUT --inductor            also with Inductor, with a cold and a warm cache
    python scripts/trace/logs.py OUT --only gpt custom     some programs
    python scripts/trace/logs.py OUT --fixtures tests/trace/logs   also anonymised copies, with aot_eager

Each log stands in OUT/PROGRAM-BACKEND[-cold|-warm]/. Paths in fixtures are those of another machine.
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from getpass import getuser
from hashlib import md5
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "trace" / "programs"
OF_TWO_RANKS = ("ddp", "fsdp", "tensor_parallel")
RANKS = 2
LIMIT_S = 600
ELSEWHERE = "/home/ada/train"
"""The folder of the programs on the fictional machine of the fixtures."""
BULKY = (b"_BYTECODE", b"fx_graph_runnable")
"""Records that no fixture needs, by the beginning of their header."""


@dataclass(frozen=True, slots=True)
class Run:
    """One program, compiled in one way."""

    program: str
    backend: str
    cache: str = ""
    """`cold` or `warm` with Inductor; empty without a cache."""

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.program, self.backend, self.cache)))

    @property
    def command(self) -> list[str]:
        script = [str(PROGRAMS / f"{self.program}.py"), self.backend]
        if self.program not in OF_TWO_RANKS:
            return [sys.executable, *script]
        return [*torchrun(), *script]


def torchrun() -> list[str]:
    """Return the beginning of a command that starts the ranks."""
    run = [sys.executable, "-m", "torch.distributed.run"]
    return [*run, "--standalone", "--nproc_per_node", str(RANKS)]


def runs(programs: list[str], *, inductor: bool) -> Iterator[Run]:
    for program in programs:
        yield Run(program, "aot_eager")
        if inductor:
            yield Run(program, "inductor", "cold")
            yield Run(program, "inductor", "warm")


def generate(run: Run, out: Path) -> Path:
    """Run the program and return the folder of its logs.  Raises CalledProcessError if it fails."""
    folder, caches = out / run.name, out / "caches" / run.program
    shutil.rmtree(folder, ignore_errors=True)
    if run.cache == "cold":
        shutil.rmtree(caches, ignore_errors=True)
    environment = os.environ | {
        "TORCH_TRACE": str(folder),
        "INDUCTOR_PROVENANCE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(
        run.command,
        env=environment,
        cwd=PROGRAMS,
        timeout=LIMIT_S,
        check=True,
        stdout=sys.stderr,
        stderr=sys.stderr,
    )
    return folder


def write_fixture(folder: Path, fixtures: Path) -> None:
    """Write compressed copies of the logs with another machine's paths, without bulky records."""
    target = fixtures / folder.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for log in sorted(folder.glob("*.log")):
        rank = re.search(r"rank_\d+_", log.name)
        name = f"dedicated_log_torch_trace_{rank[0] if rank else ''}fixture0.log.gz"
        (target / name).write_bytes(packed_log(log, places()))


def packed_log(log: Path, folders: dict[bytes, bytes], without: tuple[bytes, ...] = BULKY) -> bytes:
    """Return the compressed log with other folders, without records whose header begins with such a word."""
    records = re.split(rb"\n(?=V\d)", log.read_bytes().rstrip(b"\n"))
    lines = [anonymised(record, folders) for record in records if not is_bulk(record, without)]
    return gzip.compress(b"\n".join(lines) + b"\n", mtime=0)


def is_bulk(record: bytes, without: tuple[bytes, ...]) -> bool:
    head = record[record.find(b"] {") + 3 :][:80]
    return any(word in head for word in without)


def anonymised(record: bytes, folders: dict[bytes, bytes]) -> bytes:
    """Return the record with other paths, and the matching checksum of the payload."""
    head, newline, payload = record.partition(b"\n")
    for path, other in folders.items():
        head, payload = head.replace(path, other), payload.replace(path, other)
    if b'"compilation_metrics"' in head[:120] or b'"bwd_compilation_metrics"' in head[:120]:
        head = re.sub(
            rb'"(inductor_config|dynamo_config|functorch_config|remote_cache_version)": "(?:[^"\\]|\\.)*"',
            rb'"\1": ""',
            head,
        )
    if newline:
        text = payload[1:].replace(b"\n\t", b"\n")
        digest = md5(text, usedforsecurity=False).hexdigest().encode()
        head = re.sub(rb'"has_payload": "[0-9a-f]{32}"', b'"has_payload": "' + digest + b'"', head)
    return head + newline + payload


def places(environment: Path | None = None) -> dict[bytes, bytes]:
    """Return this machine's folders, the longest first, with their replacements.

    The installed packages are those of this Python, or of an environment.
    """
    if environment is not None:
        installed = {str(folder) for folder in environment.glob("lib/python*/site-packages")}
    else:
        torch = find_spec("torch")
        if torch is None or torch.submodule_search_locations is None:
            raise SystemExit("torch is not installed here")
        installed = {
            sysconfig.get_path("purelib"),
            *(str(Path(folder).parent) for folder in torch.submodule_search_locations),
        }
    folders = {
        str(PROGRAMS): ELSEWHERE,
        **dict.fromkeys(installed, "/opt/python/lib/site-packages"),
        str(ROOT): "/home/ada/aotlens",
        sys.base_prefix: "/opt/python",
        str(Path.home()): "/home/ada",
        "/".join(PROGRAMS.parts[-5:]): ELSEWHERE.removeprefix("/"),  # comments shorten paths
        f"torchinductor_{getuser()}": "torchinductor_ada",
    }
    ordered = sorted(folders.items(), key=lambda entry: -len(entry[0]))
    return {path.encode(): other.encode() for path, other in ordered if len(path) > 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="PROGRAM")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--fixtures", type=Path)
    options = parser.parse_args()
    programs = options.only or sorted(path.stem for path in PROGRAMS.glob("*.py"))
    for run in runs(programs, inductor=options.inductor):
        folder = generate(run, options.out.resolve())
        if options.fixtures is not None and run.backend == "aot_eager":
            write_fixture(folder, options.fixtures)
        print(f"{run.name}: {sum(log.stat().st_size for log in folder.glob('*.log')):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
