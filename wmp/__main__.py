"""``python -m wmp`` is the program ``wmp``."""

from wmp.cli.common.entry_point import start

if __name__ == "__main__":
    start("wmp", "wmp.cli.program")
