"""`aotlens fit SNAPSHOT.pickle`: who held GPU memory, at an out-of-memory error for example."""

import argparse

from aotlens.cli.terminal import write_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "snapshot",
        metavar="SNAPSHOT.pickle",
        help="a file that torch.cuda.memory._dump_snapshot wrote; nothing in it is run",
    )
    parser.add_argument("--full", action="store_true", help="show every line that holds memory")


def run(arguments: argparse.Namespace) -> int:
    from aotlens.errors import UserError
    from aotlens.fit.snapshot_child import read_in_child
    from aotlens.fit.snapshot_text import snapshot_lines

    devices = read_in_child(arguments.snapshot)
    if not devices:
        raise UserError(f"{arguments.snapshot}: no device holds memory in it, and no allocation failed")
    parts = ("\n".join(snapshot_lines(device, is_full=arguments.full)) for device in devices)
    write_data("\n\n".join(parts) + "\n", None)
    return 0
