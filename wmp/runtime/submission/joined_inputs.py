"""Several iterables as the inputs of one ``map``: each job gets one item of each iterable."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any


def joined(
    iterables: tuple[Iterable[Any] | AsyncIterable[Any], ...], codec: str
) -> Iterable[Any] | AsyncIterable[Any]:
    """Return the payloads of a ``map`` over these iterables.

    The payload of a job is the item of a single iterable. With several iterables, the payload is a
    tuple of one item of each, and the shortest iterable ends the ``map``, as for the builtin
    ``map``.

    Args:
        iterables: One or more.
        codec: Name of the codec of the payloads.

    Raises:
        TypeError: An argument cannot be iterated, or the codec cannot encode a tuple.
    """
    given: tuple[object, ...] = iterables  # not all callers are type-checked
    for number, source in enumerate(given, 1):
        if not isinstance(source, Iterable | AsyncIterable) and not hasattr(source, "__getitem__"):
            raise TypeError(
                f"argument {number} of map() is of type {type(source).__name__}; "
                "expected an iterable"
            )
    if len(iterables) == 1:
        return iterables[0]
    if codec in ("bytes", "text"):
        raise TypeError(
            f"map() has {len(iterables)} iterables, so each payload is a tuple of "
            f"{len(iterables)} items, which codec={codec!r} cannot encode; make the manager with "
            "codec='cbor', or pass one iterable of bytes"
        )
    if any(isinstance(source, AsyncIterable) for source in iterables):
        return _zipped(iterables)
    return zip(*(source for source in iterables if isinstance(source, Iterable)), strict=False)


async def _zipped(
    iterables: tuple[Iterable[Any] | AsyncIterable[Any], ...],
) -> AsyncIterator[tuple[Any, ...]]:
    """Yield tuples of one item of each iterable until one iterable ends."""
    sources = [
        aiter(source) if isinstance(source, AsyncIterable) else iter(source) for source in iterables
    ]
    try:
        while True:
            items = []
            for source in sources:
                try:
                    if isinstance(source, AsyncIterator):
                        items.append(await anext(source))
                    else:
                        items.append(next(source))
                except (StopIteration, StopAsyncIteration):
                    return
            yield tuple(items)
    finally:
        for source in sources:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()
