"""What server-side apply does to values: merge what is applied into what is there, and take away what nobody wants.

Maps merge by field and keyed lists by item, so that each manager may have its own part of one list. The order of a list
is that of the applied one for the items in it, with what only the live list has kept in its place between them.
"""

from __future__ import annotations

from typing import Any

from moorage.lab.kube import fieldsets, typed

ABSENT: Any = object()


def merged(type_: typed.Type, live: Any, applied: Any) -> Any:
    """The live value with the applied one over it; neither is changed, and parts of them are in what comes out."""
    if applied is ABSENT:
        return live
    if live is ABSENT:
        return applied
    form = type_.form(applied)
    if form == typed.MAP and not type_.atomic:
        ours, theirs = applied or {}, live if isinstance(live, dict) else {}
        if ours or theirs:
            return _merged_maps(type_, theirs, ours)
    elif form == typed.LIST and not type_.whole_list:
        items, present = applied or [], live if isinstance(live, list) else []
        if items or present:
            return _merged_lists(type_, present, items)
    return applied


def _merged_maps(type_: typed.Type, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name in {**live, **applied}:
        value = merged(type_.field(name) or typed.FREE, live.get(name, ABSENT), applied.get(name, ABSENT))
        found[name] = value
    return found


def _merged_lists(type_: typed.Type, live: list[Any], applied: list[Any]) -> list[Any]:
    """Walk along both lists: items of the live one alone stay where they are, the others come in the applied order."""
    ours = {fieldsets.item(type_, value): value for value in applied}
    order = list(ours)
    theirs: dict[str, Any] = {}
    places = []
    for value in live:
        element = fieldsets.item(type_, value)
        # Of items with the same key none can be meant: an applied one takes the place of all of them.
        theirs[element] = ABSENT if element in theirs else value
        places.append(element)
    shared = [element for element in order if element in theirs]
    found: list[Any] = []
    done: set[str] = set()
    at = taken = next_shared = 0

    def take(element: str) -> None:
        done.add(element)
        found.append(merged(type_.items, theirs.get(element, ABSENT), ours[element]))

    while at < len(live) or taken < len(order):
        if at < len(live) and taken < len(order):
            here = places[at]
            if here == order[taken]:
                take(here)
                at, taken, next_shared = at + 1, taken + 1, next_shared + 1
                continue
            if here in ours and next_shared < len(shared) and shared[next_shared] != here:
                at += 1
                continue
        if at < len(live):
            if places[at] not in ours:
                found.append(live[at])
                at += 1
                continue
            if places[at] in done:
                at += 1
        if taken < len(order):
            element = order[taken]
            take(element)
            taken += 1
            if next_shared < len(shared) and shared[next_shared] == element:
                next_shared += 1
    return found


def removed(type_: typed.Type, value: Any, fields: fieldsets.Set) -> Any:
    """The value without the members of a set; `ABSENT` if nothing is left of it."""
    form = type_.form(value)
    if form == typed.MAP:
        if type_.atomic or not value:
            return ABSENT
        return _without_fields(type_, value, fields)
    if form == typed.LIST:
        if type_.whole_list or not value:
            return ABSENT
        return _without_items(type_, value, fields)
    return value


def _without_fields(type_: typed.Type, value: dict[str, Any], fields: fieldsets.Set) -> Any:
    found = {}
    for name, inner in value.items():
        below = fields.get(f"f:{name}")
        if below is None:
            found[name] = inner
        elif below and "." not in below:
            left = removed(type_.field(name) or typed.FREE, inner, below)
            if left is not ABSENT:
                found[name] = left
    return found or ABSENT


def _without_items(type_: typed.Type, value: list[Any], fields: fieldsets.Set) -> Any:
    found = []
    for inner in value:
        try:
            below = fields.get(fieldsets.item(type_, inner))
        except typed.Untyped:
            below = None
        if below is None:
            found.append(inner)
        elif below and "." not in below:
            left = removed(type_.items, inner, below)
            if left is not ABSENT:
                found.append(left)
    return found or ABSENT
