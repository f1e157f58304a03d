"""Print the table of settings for docs/settings.md, from `aotlens.settings`."""

from aotlens.settings import TRACE_SETTINGS


def main() -> None:
    print("| option | editor | `[tool.aotlens]` | takes | means |\n|---|---|---|---|---|")
    for setting in TRACE_SETTINGS:
        names = f"`{setting.option}` | `aotlens.{setting.editor}` | `{setting.key}`"
        accepts = setting.kind.accepts.replace("|", "\\|")
        print(f"| {names} | {accepts} | {setting.means} |")


if __name__ == "__main__":
    main()
