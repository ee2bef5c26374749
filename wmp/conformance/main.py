"""Entry point of the program ``wmp-conformance``."""

from __future__ import annotations

from typing import NoReturn

from wmp.cli.entry_point import start

__all__ = ["main"]


def main() -> NoReturn:
    """Run ``wmp-conformance``."""
    start(
        "wmp-conformance",
        "wmp.conformance.program",
        extra="conformance",
        needed=("click", "rich", "hypothesis", "jinja2"),
    )


if __name__ == "__main__":
    main()
