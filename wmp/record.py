"""A base of frozen classes that worker processes make at their start.

A class of attrs takes ten times as long to make, and attrs itself as long as a tenth of such a
start.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, dataclass_transform

__all__ = ["FrozenRecord"]


@dataclass_transform(frozen_default=True)
class FrozenRecord:
    """A class of values: its annotated attributes are its fields, in their order.

    Records are compared by their fields, and can be pickled. Fields must have immutable defaults.
    """

    _names: ClassVar[tuple[str, ...]] = ()
    """The names of the fields."""

    def __init_subclass__(cls) -> None:
        cls._names = names = tuple(cls.__annotations__)
        type.__setattr__(cls, "__match_args__", names)  # for patterns with values by position
        # One function of Python code for each class, as attrs has: a loop over the fields would
        # cost each record more.
        defaults = {f"default_{name}": vars(cls)[name] for name in names if name in vars(cls)}
        parameters = [
            f"{name}=default_{name}" if f"default_{name}" in defaults else name for name in names
        ]
        lines = [f"def __init__({', '.join(['self', *parameters])}):", "    held = self.__dict__"]
        lines += [f"    held[{name!r}] = {name}" for name in names]
        exec("\n".join(lines), defaults)  # the source contains only names of fields
        type.__setattr__(cls, "__init__", defaults["__init__"])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make another one for {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; it keeps {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self._names])

    def with_(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields."""
        held = dict(zip(self._names, self._values(), strict=True))
        return type(self)(**{**held, **changes})
