"""Templates: one environment that escapes every value; amounts and durations in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_UNITS: Final = ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))

# XML cannot hold these characters, not even escaped; HTML shows none of them.
_CONTROLS: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def duration(micros: float | None) -> str:
    """Return µs in words: ``850 µs``, ``1.2 ms``, ``3 s``; a dash for None."""
    if micros is None:
        return "–"
    for unit, name in _UNITS:
        if abs(micros) >= unit:
            value = micros / unit
            return f"{value:.3g} {name}" if value < 1000 else f"{value:.0f} {name}"
    return f"{micros:.0f} µs"


def moment(micros: float | None) -> str:
    """Return a time of µs since 1970 in UTC: ``2026-11-27 00:47:01.409``; a dash for None."""
    if micros is None:
        return "–"
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def amount(value: float | None) -> str:
    """Return a number in words: ``12 345``, ``0.42``; a dash for None."""
    if value is None:
        return "–"
    if value == int(value):
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}" if abs(value) < 1000 else amount(round(value))


def _without_controls(value: Any) -> Any:
    """Replace the characters that XML cannot hold, in text and in markup."""
    if isinstance(value, str) and (controls := set(_CONTROLS.findall(value))):
        return value.translate(dict.fromkeys(map(ord, controls), _REPLACEMENT))
    return value


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("wmp.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_without_controls,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(amount=amount, duration=duration, moment=moment)


def render(template: str, **values: Any) -> Markup:
    """Render a template of ``templates``.

    Args:
        template: Name of the file.
        values: The variables of the template. Each value is escaped as text, except ``Markup``,
        which is a result of this function.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))
