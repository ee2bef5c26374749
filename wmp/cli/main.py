"""Entry point of the program ``wmp``."""

from __future__ import annotations

from typing import NoReturn

from wmp.cli.entry_point import start

__all__ = ["main"]


def main() -> NoReturn:
    """Run ``wmp``."""
    start("wmp", "wmp.cli.program")


if __name__ == "__main__":
    main()
