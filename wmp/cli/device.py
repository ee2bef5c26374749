"""Entry point of the program ``wmp-device``."""

from __future__ import annotations

from typing import NoReturn

from wmp.cli.entry_point import start

__all__ = ["main"]


def main() -> NoReturn:
    """Run ``wmp-device``."""
    start("wmp-device", "wmp.cli.proxy")


if __name__ == "__main__":
    main()
