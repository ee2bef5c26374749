"""Start Spark: Java, the session, Arrow."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.spark.session.session import start_session

__all__ = ["start_session"]

__getattr__, __dir__ = _lazy_names(__name__, {"start_session": "wmp.spark.session.session"})
