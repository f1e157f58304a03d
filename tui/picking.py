"""The screen on which the user chooses a GPU."""

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from aotlens.view.tabs.gpus import gpu_listing, gpu_row
from tui.keys import bind
from tui.screens import BOX_CSS
from tui.widgets.row_list import RowList
from tui.widgets.table import VirtualTable


@dataclass(frozen=True, slots=True)
class GpuAnswer:
    """The user's choice."""

    name: str | None
    """None for no kernels."""


class GpuScreen(ModalScreen[GpuAnswer]):
    """Lists the known GPUs; none of them has to be present."""

    DEFAULT_CSS = BOX_CSS.format(name="GpuScreen") + "\nGpuScreen VirtualTable { height: 26; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("gpus.close", "escape,q", "dismiss", ("Close", "Keep the GPU."))
    ]

    def __init__(self, current: str | None) -> None:
        super().__init__()
        self.current = current

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Kernels for which GPU?"
            box.border_subtitle = "Enter traces for it · Esc keeps the present one"
            yield VirtualTable(id="gpus")

    def on_mount(self) -> None:
        table = self.query_one(VirtualTable)
        table.show(gpu_listing(self.current))
        table.place_cursor(gpu_row(self.current))
        table.focus()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        event.stop()
        self.dismiss(GpuAnswer(self.query_one(VirtualTable).key.removeprefix("gpu:") or None))
