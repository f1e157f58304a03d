"""Takes the pictures of the HTML page: `python scripts/screenshots/html_page.py`; needs Chromium."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PICTURES = {
    "page": "#GPT.forward/graphs/forward/softmax",
    "page-graph": "#GPT.forward/graphs/backward",
    "page-saved": "#GPT.forward/saved/addmm_2",
    "page-memory": "#GPT.forward/memory/curve/backward/mm_4",
}
"""Each picture with the address that it shows."""
CHANGED_LINE = "#layer/lines/changed/examples/edit/after.py:12"


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no chromium on the path: it draws the page")
    with tempfile.TemporaryDirectory() as folder:
        file, difference = Path(folder) / "page.html", Path(folder) / "diff.html"
        aotlens("inspect", "examples/train_gpt.py", "--format", "html", "-o", str(file))
        for name, address in PICTURES.items():
            picture(browser, f"{file.as_uri()}{address}", IMAGES / f"{name}.png")
        aotlens("fit", "--gpu", "t4", "--format", "html", "-o", str(file), "examples/train_gpt.py")
        picture(browser, file.as_uri(), IMAGES / "page-fit.png")
        edits = ("examples/edit/before.py", "examples/edit/after.py")
        aotlens("diff", *edits, "--format", "html", "-o", str(difference))
        picture(browser, f"{difference.as_uri()}{CHANGED_LINE}", IMAGES / "page-diff.png")


def aotlens(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "aotlens", *words], cwd=ROOT, check=True)


def picture(browser: str, address: str, image: Path) -> None:
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,880"]
    wait = ["--virtual-time-budget=3000", f"--screenshot={image}"]
    subprocess.run([browser, *options, *wait, address], check=True, capture_output=True)
    print(image)


if __name__ == "__main__":
    main()
