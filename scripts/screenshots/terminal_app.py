"""Makes the pictures of the terminal app in docs/images/ from a real report of examples/train_gpt.py.

    python scripts/screenshots/terminal_app.py [--report FILE] [--png]

Without --report the example is traced first.  --png also writes PNGs (with rsvg-convert and Fira Code),
to look at; the documents show the SVGs.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
EXAMPLE = "examples/train_gpt.py"


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture, with the keys that lead to it."""

    name: str
    keys: tuple[str, ...]
    size: tuple[int, int] = (146, 42)
    row: tuple[str, str] | None = None
    """Table and key of the row to select; None for the first."""
    gpu: str | None = None
    """The GPU whose kernels the report has."""
    beside: tuple[str, ...] = ()
    """The options of a second report, which it is compared with."""
    of_step: bool = False
    """Whether it shows the report of `aotlens fit`."""


PICTURES = (
    Picture("overview", ()),
    Picture("stages", ("3",), row=("diff", "bernoulli_1")),
    Picture("graphs", ("4",), row=("nodes", "addmm_2")),
    Picture("saved", ("5",)),
    Picture("memory", ("6", "p")),
    Picture("wrapper", ("7",)),
    Picture("kernels", ("8", "l"), gpu="h100"),
    Picture("kernel", ("8", "down", "p", "right_square_bracket"), gpu="h100"),
    Picture("light", ("d", "4", "z"), row=("nodes", "softmax")),
    Picture("find", ("slash", "slash", *"gelub")),
    Picture("narrow", ("5",), size=(80, 24)),
    Picture("hops", ("4", "m", "z"), size=(160, 40), row=("nodes", "permute_1")),
    Picture("sorted", ("8", "o", "greater_than_sign", "less_than_sign", "less_than_sign"), gpu="h100"),
    Picture("help", ("5", "question_mark")),
    Picture("compare", (), size=(150, 32), beside=("--policy", "default")),
    Picture("fit", ("F", "down"), of_step=True),
)


async def take(picture: Picture, report_file: Path) -> str:
    """Return the picture as SVG."""
    from aotlens.model import loads
    from tui.app import AotlensApp
    from tui.widgets.table import VirtualTable

    report = loads(report_file.read_text(encoding="utf-8"))
    app = AotlensApp(EXAMPLE, report=report)
    if picture.beside:
        app.compare_with(" ".join(picture.beside), loads(trace(*picture.beside).read_text(encoding="utf-8")))
    async with app.run_test(size=picture.size) as pilot:
        while not app.workbench.is_loaded or app.workbench.subject is None:  # keys before then are lost
            await pilot.pause(0.05)
        await pilot.pause(0.5)
        await pilot.press(*picture.keys)
        if picture.row is not None:
            name, key = picture.row
            app.workbench.query_one(f"#{name}", VirtualTable).select(key, notify=True)
        await pilot.pause(1.0)  # the footer is drawn last
        return portable(app.export_screenshot(title=f"aotlens tui {EXAMPLE}"))


def portable(svg: str) -> str:
    """Return equal text for an equal screen: without the random id, with blanks that viewers keep."""
    steady = re.sub(r"terminal-\d+", "terminal", svg)
    return steady.replace("<text ", '<text xml:space="preserve" ')


def trace(*options: str, name: str = "inspect") -> Path:
    """Return a report of the example, from the command that users run."""
    file = Path(tempfile.mkdtemp()) / "report.json"
    command = [sys.executable, "-m", "aotlens", name, "--format", "json", "-o", str(file)]
    subprocess.run([*command, *options, EXAMPLE], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, help="a saved report of the example")
    parser.add_argument("--png", action="store_true", help="also write PNGs")
    parser.add_argument("--only", help="the name of one picture")
    arguments = parser.parse_args()
    pictures = [picture for picture in PICTURES if arguments.only in (None, picture.name)]
    report = arguments.report.resolve() if arguments.report else trace()
    reports = {
        None: report,
        **{gpu: trace("--gpu", gpu) for gpu in {picture.gpu for picture in pictures} if gpu is not None},
    }
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    IMAGES.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        file = IMAGES / f"tui-{picture.name}.svg"
        shown = trace("--gpu", "t4", name="fit") if picture.of_step else reports[picture.gpu]
        file.write_text(asyncio.run(take(picture, shown)), encoding="utf-8")
        print(file.relative_to(ROOT))
        if arguments.png:
            subprocess.run(["rsvg-convert", "-o", str(file.with_suffix(".png")), str(file)], check=True)


if __name__ == "__main__":
    main()
