"""Makes the pictures of docs/attach.md: a log of another machine, opened in the checkout of its program.

    python scripts/screenshots/log_report.py LOG CHECKOUT [--gpu h100] [--target NAME] [--png]

The program need not be in this repository: the files of the log are looked for in CHECKOUT, as `aotlens tui
LOG` looks for them in the current folder.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from aotlens.cli.log_reports import LogReports
from aotlens.model.report import Report
from aotlens.worker.protocol import TraceOptions
from scripts.screenshots.terminal_app import IMAGES, ROOT, portable


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture, with the keys that lead to it."""

    name: str
    keys: tuple[str, ...]
    size: tuple[int, int] = (146, 42)


PICTURES = (
    Picture("log-overview", ()),
    Picture("log-kernels", ("8", "o")),
)


async def take(picture: Picture, title: str, report: Report, target: str) -> str:
    """Return the picture as SVG."""
    from tui.app import AotlensApp

    app = AotlensApp(title, report=report, roots=(str(Path.cwd()),))
    async with app.run_test(size=picture.size) as pilot:
        while not app.workbench.is_loaded:
            await pilot.pause(0.1)
        names = [each.qualname for each in report.targets]
        if target:
            app.workbench.choose_target(names.index(target))
            await pilot.pause()
        await pilot.press(*picture.keys)
        await pilot.pause(1.0)  # the footer is drawn last
        return portable(app.export_screenshot(title=f"aotlens tui {title}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--gpu", help="compile the kernels of the log for this GPU")
    parser.add_argument("--target", default="", help="the target to show; default: the first")
    parser.add_argument("--png", action="store_true", help="also write PNGs, to look at")
    options = parser.parse_args()
    log = options.log.resolve()
    os.chdir(options.checkout)
    report = LogReports(str(log), (), TraceOptions(gpu=options.gpu)).report()
    for picture in PICTURES:
        file = IMAGES / f"tui-{picture.name}.svg"
        file.write_text(asyncio.run(take(picture, log.name, report, options.target)), encoding="utf-8")
        print(file.relative_to(ROOT))
        if options.png:
            subprocess.run(["rsvg-convert", "-o", f"/tmp/{file.stem}.png", str(file)], check=True)


if __name__ == "__main__":
    main()
