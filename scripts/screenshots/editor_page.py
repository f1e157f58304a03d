"""Actions of a user in VS Code and what they then see, for a script that drives it in a browser."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only this script needs the package, so no extra has it
    from playwright.sync_api import Locator, Page

QUIET_BROWSER = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000.0
SIZE = {"width": 1280, "height": 720}


@contextmanager
def browser_page(browser: str, address: str, options: Sequence[str] = QUIET_BROWSER) -> Iterator["Page"]:
    """Open the address in a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=list(options))
        page = running.new_page(viewport={"width": SIZE["width"], "height": SIZE["height"]})
        page.set_default_timeout(PATIENCE_MS)
        page.goto(address)
        try:
            yield page
        finally:
            running.close()


class EditorPage:
    """Each method waits for the element that it names, and fails without it."""

    def __init__(self, page: "Page") -> None:
        self.page = page

    def answer_trust(self, trusts: bool) -> None:
        """Answer the trust question of a newly opened folder."""
        name = "Yes, I trust the authors" if trusts else "No, I don't trust the authors"
        self.page.get_by_text(name).click()

    def grant_trust(self) -> None:
        """Grant trust from the message of a rejected trace."""
        self.press_button("Manage Workspace Trust")
        self.press_button("Trust")
        self.page.keyboard.press("Control+w")

    def press_button(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def open_file(self, name: str) -> None:
        self._palette("Control+p", name)
        self.page.locator(".tab", has_text=name).first.wait_for()

    def run_command(self, title: str) -> None:
        self._palette("Control+Shift+p", f">{title}")

    def pick(self, label: str) -> None:
        """Choose a row of the open menu."""
        named = self.page.get_by_text(label, exact=True)
        self.page.locator(".quick-input-list .monaco-list-row").filter(has=named).first.click()

    def lens(self, text: str) -> "Locator":
        lens = self.page.locator(".codelens-decoration a", has_text=text).first
        lens.wait_for()
        return lens

    def lenses(self) -> list[str]:
        texts = self.page.locator(".codelens-decoration").all_inner_texts()
        return [" ".join(text.split()) for text in texts]

    def see(self, selector: str, text: str = "") -> None:
        self.page.locator(selector, has_text=text).first.wait_for()

    def see_message(self, text: str) -> None:
        self.see(".notification-list-item-message", text)

    def see_hint(self, text: str) -> None:
        """Wait for an inlay hint, which is drawn as part of a line."""
        self.see(".view-line", text.replace(" ", "\xa0"))

    def hover(self, text: str) -> str:
        """Return the hover of the first `text` in a line."""
        self.page.mouse.move(5, 5)
        self.page.locator(".view-line").get_by_text(text).first.hover()
        shown = self.page.locator(".monaco-hover .hover-contents").first
        shown.wait_for()
        return "\n".join(self.page.locator(".monaco-hover").all_inner_texts())

    def status(self) -> str:
        return str(self.page.locator(".statusbar-item", has_text="aotlens").first.get_attribute("aria-label"))

    def focused(self) -> str:
        """Return the class of the element with the keyboard focus."""
        return str(self.page.evaluate("document.activeElement.className"))

    def picture(self, path: str) -> None:
        self.page.wait_for_timeout(1_000)  # elements that fade in are drawn
        self.page.screenshot(path=path)

    def _palette(self, keys: str, text: str) -> None:
        self.page.keyboard.press(keys)
        box = self.page.locator(".quick-input-box input").first
        box.fill(text)
        row = self.page.locator(".quick-input-list .monaco-list-row", has_text=text.removeprefix(">"))
        row.first.wait_for()
        self.page.keyboard.press("Enter")
