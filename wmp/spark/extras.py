"""The extras `spark` and `report`: which packages each has, and the error of a missing package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final

from wmp.errors import ConfigError

_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "report": ("pyarrow", "msgspec", "numpy", "jinja2", "plotly"),
    "spark": ("pyspark", "pandas", "pyarrow"),
}
"""The packages of an extra without which nothing works that needs the extra."""


def need_extra(extra: str, what: str) -> None:
    """Check that the packages of an extra are installed.

    Args:
        extra: ``spark`` or ``report``. Executors of Spark need not have the packages of reports.
        what: The feature that needs the packages, for the text of the error: ``a report``.

    Raises:
        ConfigError: A package is missing; the text names the package, and the command that installs
        the extra.
    """
    needed = _PACKAGES[extra]
    for package in needed:
        if importlib.util.find_spec(package) is None:
            listed = f"{', '.join(needed[:-1])} and {needed[-1]}"
            raise ConfigError(
                f"{what} needs {listed}, and {package} is not installed; run: pip install "
                f"'worker-manager-protocol[{extra}]'"
            )
