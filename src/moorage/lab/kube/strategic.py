"""Strategic merge patch: a merge patch that knows from the schema which lists are merged, and by which key.

A patch may say how it is meant: ``$patch: replace|delete`` about an object or an item, ``$deleteFromPrimitiveList/x``
and ``$setElementOrder/x`` about the list x beside them, ``$retainKeys`` about the fields that may stay. Only built-in
kinds can be patched so. Refusals have the words and codes of the real server, which calls some its own failure (500).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from moorage.lab.kube import kinds, patches, problem

Object = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_ORDER = "$setElementOrder"
_NO_SCHEMA: kinds.Schema = {}

ACCEPTED = "the body of the request was in an unknown format - accepted media types include: "
_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def check_type(kind: kinds.Kind, patch_type: str) -> None:
    """415 unless objects of this kind take patches of this media type."""
    taken = [each for each in _TYPES if not (kind.custom and "strategic" in each)]
    if patch_type not in taken:
        raise problem.unsupported_media_type(ACCEPTED + ", ".join(taken))


def merge(schema: kinds.Schema | None, content: Object, patch: Any) -> Object:
    """The object with the patch merged into it; neither is changed."""
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        told = f"json: cannot unmarshal {patches.json_type(patch)} into Go value of type map[string]interface {{}}"
        raise problem.bad_request(told)
    return _merged(schema or _NO_SCHEMA, content, patch)


def _broken(message: str) -> NoReturn:
    """Refuse with what a real server passes on as an error of its own."""
    raise problem.broken(message)


def _field(schema: kinds.Schema, name: str) -> kinds.Schema:
    found = (schema.get("properties") or {}).get(name)
    if found is None:
        found = schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else _NO_SCHEMA


def _strategies(schema: kinds.Schema) -> list[str]:
    return str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _merge_key(schema: kinds.Schema) -> str:
    return str(schema.get("x-kubernetes-patch-merge-key", ""))


def _merged(schema: kinds.Schema, content: Object | None, patch: Object) -> Object:
    if _DIRECTIVE in patch:
        return _directed(patch)
    found, patch = _retained(dict(content or {}), patch)
    found, patch = _reordered(schema, found, patch)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE_FROM)
        name = _beside(key, _DELETE_FROM, "invalid patch format of primitive list") if deleting else key
        if value is None:
            found.pop(name, None)
            continue
        present = found.get(name)
        if present is None or patches.go_type(present) != patches.go_type(value):
            if not deleting:
                _set(found, name, patches.pruned(value))
        elif isinstance(value, dict):
            inner = _field(schema, name)
            found[name] = value if "replace" in _strategies(inner) else _merged(inner, present, value)
        elif isinstance(value, list):
            inner = _field(schema, name)
            if deleting or "merge" in _strategies(inner):
                found[name] = _merged_list(inner, present, value, deleting)
            else:
                found[name] = value
        else:
            found[name] = value
    return found


def _directed(patch: Object) -> Object:
    if patch[_DIRECTIVE] == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if patch[_DIRECTIVE] == "delete":
        return {}
    _broken(f"unknown patch type: {patch[_DIRECTIVE]} in map: {patches.as_go(patch)}")


def _set(found: Object, name: str, value: Any) -> None:
    if isinstance(value, dict) and _DIRECTIVE in value:
        found.pop(name, None)
    else:
        found[name] = _undirected(value)


def _undirected(value: Any) -> Any:
    """A value that meets nothing to be merged with: without what it says about merging."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not (isinstance(v, dict) and _DIRECTIVE in v)}
        return {key: _undirected(inner) for key, inner in kept.items()}
    if isinstance(value, list):
        return [_undirected(inner) for inner in value if not (isinstance(inner, dict) and _DIRECTIVE in inner)]
    return value


def _beside(key: str, prefix: str, wrong: str) -> str:
    """The list that a directive such as $setElementOrder/containers stands beside."""
    directive, slash, name = key.partition("/")
    if directive != prefix or not slash:
        raise problem.bad_request(wrong)
    return name


def _retained(content: Object, patch: Object) -> tuple[Object, Object]:
    if _RETAIN not in patch:
        return content, patch
    kept = patch[_RETAIN]
    rest = {key: value for key, value in patch.items() if key != _RETAIN}
    said = [key for key, value in rest.items() if value is not None and not key.startswith((_DELETE_FROM, _ORDER))]
    if not isinstance(kept, list) or any(key not in kept for key in said):
        raise problem.bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in content.items() if key in kept}, rest


def _reordered(schema: kinds.Schema, content: Object, patch: Object) -> tuple[Object, Object]:
    """Merge the lists whose order the patch sets; what is left of the patch is merged as usual."""
    directives = [key for key in patch if key.startswith(_ORDER)]
    if not directives:
        return content, patch
    patch = dict(patch)
    for key in directives:
        order = patch.pop(key)
        _check_list(order)
        name = _beside(key, _ORDER, "invalid patch format of setElementOrder list")
        inner, merge_key = _field(schema, name), _merge_key(_field(schema, name))
        live, change = content.get(name), patch.pop(name, None)
        for each in (live, change):
            if each is not None:
                _check_list(each)
        _check_order(change or [], order, merge_key)
        if live is None and change is None:
            continue
        if change is None:
            merged = live
        elif live is None:
            merged = _undirected(change)
        else:
            merging = "merge" in _strategies(inner)
            merged = _merged_list(inner, live, change, deleting=False) if merging else change
        _element_type(live or [], change or [])
        content[name] = _in_order(merged or [], order, live or [], merge_key)
    return content, patch


def _check_list(value: Any) -> None:
    if not isinstance(value, list):
        _broken(f"expected a []interface {{}}, but received a {patches.go_type(value)}")


def _check_order(change: list[Any], order: list[Any], merge_key: str) -> None:
    """The items of the patch have to come in the order that it sets itself."""
    if not change or not order:
        return
    items = [item for item in change if not (isinstance(item, dict) and _DIRECTIVE in item)]
    place = 0
    for wanted in order:
        if place < len(items) and _key(items[place], merge_key) == _key(wanted, merge_key):
            place += 1
    if place < len(items):
        told = f"{patches.as_go(change)}\n doesn't match {_ORDER} list:\n{patches.as_go(order)}\n"
        _broken(f"The order in patch list:\n{told}")


def _key(item: Any, merge_key: str) -> Any:
    """By what an item of a merged list is known: its merge key, or itself."""
    if not merge_key:
        return item
    if not isinstance(item, dict):
        _broken(f"expected a map[string]interface {{}}, but received a {patches.go_type(item)}")
    if merge_key not in item:
        _broken(f"map: {patches.as_go(item)} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _element_type(*lists: list[Any]) -> str:
    kinds_of = {patches.go_type(item) for each in lists for item in each}
    if len(kinds_of) > 1:
        _broken(f"list element types are not identical: {patches.as_go(list(lists))}")
    if kinds_of == {"[]interface {}"}:
        raise problem.Problem(422, "Invalid", "the server rejected our request due to an error in our request")
    if not kinds_of:
        _broken("no elements in any of the given slices")
    return kinds_of.pop()


def _merged_list(schema: kinds.Schema, live: list[Any], change: list[Any], deleting: bool) -> list[Any]:
    if not live and not change:
        return live
    merge_key = _merge_key(schema)
    if _element_type(live, change) != "map[string]interface {}":
        if deleting:
            return [item for item in live if item not in change]
        merged = list(dict.fromkeys([*live, *change]))
        return _in_order(merged, change, live, "")
    if not merge_key:
        _broken("cannot merge lists without merge key for []interface {}")
    live, change = _special(live, change, merge_key)
    merged = list(live)
    for item in change:
        wanted = _key(item, merge_key)
        for place, present in enumerate(merged):
            if present.get(merge_key) == wanted:
                merged[place] = _merged(schema.get("items") or _NO_SCHEMA, present, item)
                break
        else:
            merged.append(_undirected(patches.pruned(item)))
    return _in_order(merged, change, live, merge_key)


def _special(live: list[Any], change: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Do what items of the patch say that are no items: delete one, or replace all."""
    plain = [item for item in change if _DIRECTIVE not in item]
    replacing = False
    for item in change:
        directive = item.get(_DIRECTIVE)
        if directive == "delete":
            wanted = _key(item, merge_key)
            live = [present for present in live if present.get(merge_key) != wanted]
        elif directive == "replace":
            replacing = True
        elif directive == "merge":
            _broken("merging lists cannot yet be specified in the patch")
        elif _DIRECTIVE in item:
            _broken(f"unknown patch type: {directive} in map: {patches.as_go(item)}")
    return (plain, []) if replacing else (live, plain)


def _in_order(items: list[Any], order: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """Items that the patch speaks of in its order, the others in theirs; where both are live, as they were there."""
    wanted = _places(order, merge_key)
    known = _places(live, merge_key)
    ours = [item for item in items if _key(item, merge_key) in wanted]
    others = [item for item in items if _key(item, merge_key) not in wanted]
    ours.sort(key=lambda item: wanted[_key(item, merge_key)])
    others.sort(key=lambda item: known.get(_key(item, merge_key), -1))
    found = []
    while ours and others:
        mine, other = known.get(_key(ours[0], merge_key)), known.get(_key(others[0], merge_key))
        first = others if mine is not None and other is not None and other < mine else ours
        found.append(first.pop(0))
    return [*found, *ours, *others]


def _places(items: list[Any], merge_key: str) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for place, item in enumerate(items):
        found.setdefault(_key(item, merge_key), place)
    return found
