"""What a resource hands to those that need it, in the one shape the journal can keep.

An output is a mapping or a frozen dataclass of plain values. It is brought to plain JSON before anyone sees it, so that
the reader of a resumed run gets exactly what the reader of the first run got.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import TypeAlias, TypeVar, Union

from moorage.engine import errors, secret

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Record: TypeAlias = "dict[str, JSON]"
T = TypeVar("T")


def plain(output: object, where: str) -> Record:
    """The output as plain JSON; raises `SecretInJournal` for a wrapped secret, TypeError for what JSON cannot hold."""
    found = _plain(output, where)
    if not isinstance(found, dict):
        raise TypeError(f"{where} is a {type(output).__name__}; an output is a mapping or a dataclass")
    return found


def _plain(value: object, where: str) -> JSON:
    if isinstance(value, secret.Secret):
        raise errors.SecretInJournal(where)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _plain(getattr(value, field.name), f"{where}.{field.name}") for field in fields}
    raise TypeError(f"{where} is a {type(value).__name__} ({value!r}), which the journal cannot hold")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where} has the key {key!r}; keys of outputs are strings")
    return str(key)


def restore(shape: type[T], record: Mapping[str, JSON]) -> T:
    """The dataclass that ``plain`` made the record from; missing fields take their defaults."""
    if not dataclasses.is_dataclass(shape):
        raise TypeError(f"{shape.__name__} is not a dataclass")
    hints = typing.get_type_hints(shape)
    names = [field.name for field in dataclasses.fields(shape) if field.init]
    return shape(**{name: _restore(hints[name], record[name]) for name in names if name in record})


def _restore(hint: object, value: JSON) -> object:
    if value is None:
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _restore(next(option for option in arguments if option is not type(None)), value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return restore(hint, value)
    if isinstance(value, list):
        inner = arguments[0] if arguments else object
        many = [_restore(inner, item) for item in value]
        return tuple(many) if hint is tuple or origin is tuple else many
    if isinstance(value, dict) and len(arguments) == 2:
        return {key: _restore(arguments[1], item) for key, item in value.items()}
    return value


class Inputs(Mapping[str, Record]):
    """The outputs of the resources that one resource declared as its needs."""

    def __init__(self, resource: str, records: Mapping[str, Record]) -> None:
        self._resource = resource
        self._records = dict(records)

    def __getitem__(self, name: str) -> Record:
        try:
            return self._records[name]
        except KeyError:
            message = f"{self._resource} takes the output of {name!r} but does not declare it in its needs"
            raise KeyError(message) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def of(self, name: str, shape: type[T]) -> T:
        """The output of ``name`` as the dataclass it was made from."""
        return restore(shape, self[name])
