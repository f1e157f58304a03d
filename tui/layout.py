"""Where the parts of the screen are, by its size and by what the user zoomed."""

WORKBENCH_CSS = """
    Workbench { background: $background; }
    #tabs { padding: 0 1; }
    #body { layout: horizontal; height: 1fr; }
    #left { width: 46%; }
    #results { width: 1fr; height: 1fr; }
    #targets { height: auto; max-height: 9; border: round $panel; border-title-color: $text-muted;
        display: none; }
    #targets.-several { display: block; }
    #source-pane, #results { border: round $panel; border-title-color: $text-muted;
        border-subtitle-color: $text-muted; }
    #source-pane:focus-within, #results:focus-within, #targets:focus {
        border: round $primary; border-title-color: $primary; border-title-style: bold; }
    Workbench.-stale #results > * { opacity: 55%; }
    Workbench.-narrow #body { layout: vertical; }
    Workbench.-narrow #left { width: 100%; height: 36%; }
    Workbench.-narrow #results { width: 100%; height: 1fr; }
    Workbench.-narrow #source-pane, Workbench.-narrow #results, Workbench.-narrow #targets {
        border: none; border-top: solid $panel; }
    Workbench.-narrow #source-pane:focus-within, Workbench.-narrow #results:focus-within,
    Workbench.-narrow #targets:focus { border: none; border-top: solid $primary; }
    Workbench.-narrow #targets { display: none; }
    Workbench.-narrow #targets.-wanted { display: block; max-height: 6; }
    Workbench.-narrow.-short #left { height: 6; }
    Workbench.-short Pane .detail { height: 5; }
    Workbench.-short #tradeoffs { display: none; }
    Workbench.-short.-narrow #recomputed { max-height: 3; }
    Workbench.-short.-narrow Pane .detail { height: 4; }
    Workbench.-short.-narrow KernelsPane .detail { height: 7; }
    Workbench.-short StagesPane .detail { height: 6; }
    Workbench.-short GraphsPane #map { height: 6; }
    Workbench.-short GraphsPane .detail { display: none; }
    Workbench.-short GraphsPane.-map #tables { display: none; }
    Workbench.-short GraphsPane.-map #map { height: 1fr; }
    Workbench.-short DiagnosticsPane .detail { height: 60%; }
    Workbench.-only-left #results, Workbench.-only-right #left { display: none; }
    Workbench.-only-left #left { width: 100%; height: 100%; }
"""
