"""Builds wheel and sdist, installs each into an environment of its own, and tries the commands there.

`python scripts/release/smoke.py` takes the dependencies from the running environment; `--full` installs
them too, as a user's `pip install` would, with the newest torch in range; `--full --torch torch==2.13.0` as
for a user who has that torch already, which spares gigabytes where pip finds a build of it without CUDA.
`--dist FOLDER` tries the wheel and the sdist that lie there instead of building them.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
import torch

# aotlens: example f32[8, 4] grad, f32[4, 4] grad
def step(x, w):
    return torch.tanh(x @ w).sum()
"""
TORCH = "import torch; print('torch', torch.__version__)"
IMPORT = (
    "import aotlens, sys; assert 'torch' not in sys.modules; print(aotlens.__version__, aotlens.__file__)"
)
COMMANDS = (
    ("aotlens", "doctor"),
    ("aotlens", "check", "step.py"),
    ("aotlens", "inspect", "step.py", "--format", "html", "-o", "step.html"),
    ("aotlens", "verify", "step.py", "--backend", "eager"),
    ("aotlens", "export", "step.py::step", "-o", "standalone.py"),
    ("python", "standalone.py"),
)


def run(words: list[str], cwd: Path) -> str:
    """Return what it prints; the script ends if it fails."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**own, "AOTLENS_CACHE_DIR": "", "NO_COLOR": "1"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> list[Path]:
    """Return the wheel and the sdist."""
    run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], ROOT)
    return sorted(folder.iterdir())


def install(artefact: Path, folder: Path, full: bool, torch: str | None) -> Path:
    """Install the artefact into a new environment and return its folder of programs.

    With `full`, the dependencies are installed too, torch according to this requirement.
    """
    venv.create(folder)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    if full:
        constraints = folder / "constraints.txt"
        constraints.write_text(f"{torch or ''}\n")
        run([*pip, "--constraint", str(constraints), str(artefact)], folder)
        return programs
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    run([*pip, "--no-deps", "--no-build-isolation", "--ignore-installed", str(artefact)], folder)
    return programs


def smoke(programs: Path, folder: Path, version: str, commands: tuple[tuple[str, ...], ...]) -> None:
    """Try the installed package in its own folder."""
    (folder / "step.py").write_text(SCRIPT)
    printed, module_file = run([str(programs / "python"), "-W", "error", "-c", IMPORT], folder).split()
    assert printed == version, f"the artefact says {printed}, _version.py {version}"
    assert Path(module_file).is_relative_to(programs.parent), f"imported from {module_file}"
    assert Path(module_file).with_name("py.typed").exists(), "py.typed is not in the artefact"
    for name, *words in commands:
        run([str(programs / name), *words], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--full", action="store_true", help="install the dependencies too")
    parser.add_argument("--torch", metavar="REQUIREMENT", help="with --full: torch==2.13.0, say")
    parser.add_argument("--dist", metavar="FOLDER", type=Path, help="what was built already")
    options = parser.parse_args()
    version = (ROOT / "aotlens" / "_version.py").read_text().split('"')[-2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for artefact in sorted(options.dist.resolve().iterdir()) if options.dist else build(folder / "dist"):
            environment = folder / artefact.suffix.strip(".")
            programs = install(artefact, environment, options.full, options.torch)
            is_wheel = artefact.suffix == ".whl"
            smoke(programs, environment, version, COMMANDS if is_wheel else COMMANDS[:2])
            release = run([str(programs / "python"), "-c", TORCH], environment).strip()
            works = f"installs with {release}, imports in silence, and its commands work"
            print(f"{artefact.name}: {works}", flush=True)


if __name__ == "__main__":
    main()
