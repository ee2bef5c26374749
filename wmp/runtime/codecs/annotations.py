"""The argument of a handler by its annotation: a payload becomes a value of the annotated type.

Codecs carry maps and texts. A handler that is annotated with a data class, a ``date`` or an array
gets such a value. The conversion is made once, when the handler is registered.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import attrs

from wmp.runtime.codecs.value_converters import (
    SIMPLE,
    Converter,
    array_converter,
    enum_converter,
    to_none,
    to_path,
    wrong_type,
)


def parameter_converter(handler: Callable[..., Any]) -> Converter | None:
    """Return the converter for the first argument of a handler.

    None if the argument is passed as it is decoded: the argument is not annotated, or its
    annotation names bytes, any value, or a type that this module does not know.
    """
    try:
        parameters = inspect.signature(handler, eval_str=True).parameters.values()
    except Exception:  # noqa: BLE001 - an annotation may be any code, and may name what is not there
        return None
    first = next(iter(parameters), None)
    if first is None or first.annotation is inspect.Parameter.empty:
        return None
    return _checked(first.annotation, "the payload")


def parameter_converters(
    function: Callable[..., Any],
) -> tuple[list[Converter | None], dict[str, Converter]]:
    """Return the converters for the arguments of a task.

    Returns:
        The converters of the positional arguments, in their order, up to the last argument with a
        converter; and the converters of the named arguments.
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except Exception:  # noqa: BLE001 - as for parameter_converter
        return [], {}
    in_order: list[Converter | None] = []
    named: dict[str, Converter] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        convert = None
        if parameter.annotation is not parameter.empty:
            convert = _checked(parameter.annotation, f"the argument {parameter.name}")
        if parameter.kind is not parameter.KEYWORD_ONLY:
            in_order.append(convert)
        if convert is not None:
            named[parameter.name] = convert
    return (in_order if any(in_order) else []), named


def _checked(annotation: Any, what: str) -> Converter | None:
    """Return a converter whose errors name the annotation; None as for :func:`converter_of`."""
    try:
        convert = converter_of(annotation)
    except Exception:  # noqa: BLE001 - code of the annotated classes
        return None
    if convert is None:
        return None
    make, name = convert, _name(annotation)

    def argument(value: Any) -> Any:
        try:
            return make(value)
        except (TypeError, ValueError) as error:
            hint = ""
            if isinstance(value, bytes):
                hint = "; submit values with wmp.Manager(codec='cbor') or codec='cbor-tags'"
            raise TypeError(f"{what} is not a valid {name}: {error}{hint}") from error

    return argument


def fields_of(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a data class or of a class of attrs.

    None for another class.
    """
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind))
    return None


def converter_of(kind: Any) -> Converter | None:
    """Return the converter to a type; None for a type whose values are passed as they are."""
    while True:
        if isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        else:
            break
    if kind is None or kind is type(None):
        return to_none
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is not None:
        return _generic(origin, arguments)
    if not isinstance(kind, type):
        return None
    simple = SIMPLE.get(f"{kind.__module__}.{kind.__qualname__}")
    if simple is not None:
        return simple
    if kind.__module__.partition(".")[0] == "numpy" and kind.__name__ == "ndarray":
        return array_converter(None)
    if issubclass(kind, enum.Enum):
        return enum_converter(kind)
    if issubclass(kind, PurePath):
        return functools.partial(to_path, kind)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _record(kind, typing.get_type_hints(kind))
    if fields_of(kind) is not None:
        # The names of the parameters of a class of attrs have no leading underscore.
        hints = typing.get_type_hints(kind, include_extras=True)
        aliases = (
            {field.name: field.alias for field in attrs.fields(kind)} if attrs.has(kind) else {}
        )
        return _record(kind, {aliases.get(name) or name: hint for name, hint in hints.items()})
    validate = getattr(kind, "model_validate", None)
    return validate if callable(validate) else None


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind).replace("typing.", "")


# -- values that contain others -----------------------------------------------------------------


def _each(convert: Converter | None, values: Any) -> list[Any]:
    return list(values) if convert is None else [convert(item) for item in values]


def _items(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        return value
    raise wrong_type(value, "a list")


def _generic(origin: Any, arguments: tuple[Any, ...]) -> Converter | None:
    if origin is typing.Union or origin is types.UnionType:
        return _union(arguments)
    if origin is typing.Literal:
        return functools.partial(_literal, arguments)
    if not isinstance(origin, type):
        return None
    if origin.__module__.partition(".")[0] == "numpy" and origin.__name__ == "ndarray":
        # NDArray[float64] is ndarray[Any, dtype[float64]].
        (item,) = typing.get_args(arguments[1])[:1] or (None,)
        return array_converter(item if isinstance(item, type) else None)
    if origin is tuple:
        return _tuple(arguments)
    if origin is dict or origin is collections.abc.Mapping:
        key, value = (converter_of(argument) for argument in arguments)
        return functools.partial(_map, arguments[0] is int, key, value)
    if len(arguments) == 1:
        make = converter_of(arguments[0])
        if origin in (list, collections.abc.Sequence, collections.abc.Iterable):
            return lambda value: _each(make, _items(value))
        if origin in (set, collections.abc.Set):
            return lambda value: set(_each(make, _items(value)))
        if origin is frozenset:
            return lambda value: frozenset(_each(make, _items(value)))
    return None


def _tuple(arguments: tuple[Any, ...]) -> Converter:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        make = converter_of(arguments[0])
        return lambda value: tuple(_each(make, _items(value)))
    each = [converter_of(kind) for kind in arguments]

    def convert(value: Any) -> tuple[Any, ...]:
        items = _items(value)
        if len(items) != len(each):
            raise ValueError(f"it has {len(items)} items; expected {len(each)}")
        pairs = zip(each, items, strict=True)
        return tuple(item if make is None else make(item) for make, item in pairs)

    return convert


def _map(numbers: bool, key: Converter | None, value: Converter | None, given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise wrong_type(given, "a map")
    converted = {}
    for name, item in given.items():
        if numbers and isinstance(name, str):
            name = int(name)  # the keys of JSON are texts
        converted[name if key is None else key(name)] = item if value is None else value(item)
    return converted


def _literal(allowed: tuple[Any, ...], value: Any) -> Any:
    if value not in allowed:
        raise ValueError(f"it is {value!r}; expected one of {', '.join(map(repr, allowed))}")
    return value


def _union(kinds: tuple[Any, ...]) -> Converter | None:
    makes = [(kind, converter_of(kind)) for kind in kinds]
    if any(make is None and not _is_exact(kind) for kind, make in makes):
        return None

    def convert(value: Any) -> Any:
        for kind, make in makes:
            if isinstance(kind, type) and type(value) is kind:
                return value if make is None else make(value)
        for _, make in makes:
            if make is not None:
                try:
                    return make(value)
                except (TypeError, ValueError):
                    pass
        raise wrong_type(value, " or ".join(_name(kind) for kind in kinds))

    return convert


def _is_exact(kind: Any) -> bool:
    """Return whether the values of a type need no conversion, and have exactly this type."""
    return kind in (bytes, dict, list, tuple, set)


def _record(kind: type, hints: dict[str, Any]) -> Converter:
    """Return the converter from a map to an object whose constructor takes the fields."""
    makes: dict[str, Converter | None] = {}
    pending = dict(hints)

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise wrong_type(value, "a map of its fields")
        given = {}
        for name, item in value.items():
            name = name.removeprefix("_") if name not in hints and name not in makes else name
            if name in pending:
                # Made at the first use, because a class may contain itself.
                makes[name] = converter_of(pending.pop(name))
            make = makes.get(name)
            try:
                given[name] = item if make is None else make(item)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from error
        return kind(**given)

    return convert
