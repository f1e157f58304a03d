"""Takes the picture of the HTML page: `python scripts/screenshot_page.py`; needs Chromium."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGE = ROOT / "docs" / "images" / "page.png"
SCRIPT = '<script>page.openTab("graphs"); page.find("forward/softmax");</script>'
"""What the picture shows."""


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no chromium on the path: it draws the page")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        inspect = ["-m", "aotlens", "inspect", "examples/train_gpt.py", "--format", "html", "-o", str(file)]
        subprocess.run([sys.executable, *inspect], cwd=ROOT, check=True)
        file.write_text(file.read_text().replace("</body>", f"{SCRIPT}</body>"))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,880"]
        wait = ["--virtual-time-budget=3000", f"--screenshot={IMAGE}"]
        subprocess.run([browser, *options, *wait, file.as_uri()], check=True, capture_output=True)
    print(IMAGE)


if __name__ == "__main__":
    main()
