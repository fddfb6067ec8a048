"""Running the graph: values for the wanted assets, and the one commit that puts them on disk.

Only what cannot be computed again is read from the state; all else is computed from the inputs, which is cheaper than
deciding whether it could be reused and cannot go stale. The user's files are laid over the generated ones on the way,
so whatever depends on them sees the edited version.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.assets import graph, overlay, store, values


@dataclasses.dataclass(frozen=True)
class Result:
    """What came out: every value by asset name, the files now in place, and the words to say about them."""

    values: Mapping[str, Any]
    written: tuple[str, ...]
    notes: tuple[str, ...]


def run(
    assets: graph.Graph,
    directory: store.Store,
    inputs: Mapping[str, Any],
    targets: Iterable[str],
    causes: Mapping[str, str],
    stamp: str,
) -> Result:
    """Compute ``targets``, write their files, and return all values.

    ``causes`` are digests of what may change between runs, by the name a user knows it; ``stamp`` names the folder
    that replaced files go to.
    """
    targets = tuple(targets)
    on_disk = {name for name, node in assets.assets.items() if any(_owned(node, p) for p in directory.state.base)}
    wanted = assets.ancestry([*targets, *on_disk])
    computed: dict[str, Any] = {}
    kept: dict[str, Any] = dict(directory.state.kept)
    laid: dict[str, overlay.Overlay] = {}
    notes: list[str] = []
    for name in _quick_first(assets):
        if name not in wanted:
            continue
        node = assets.assets[name]
        if node.make is None:
            computed[name] = inputs[name]
            continue
        parents = {need: computed[need] for need in node.needs}
        if node.kept is not None:
            computed[name], reason = _recall(node.kept, node.make, node, parents, directory.state.kept)
            kept[name] = computed[name]
            if reason:
                notes.append(reason)
        else:
            computed[name] = node.make(**parents)
        if node.files:
            laid[name] = _lay(node, computed[name], directory)
            computed[name] = _value(node, laid[name].effective)
    in_force = {name: part for name, part in laid.items() if name in {*targets, *on_disk}}
    return _settle(directory, computed, kept, causes, in_force, notes, stamp)


def _quick_first(assets: graph.Graph) -> list[str]:
    """Parents before children; and what needs no key before what does, since keys are still being made on threads."""
    late = assets.waiting_for("keyring") if "keyring" in assets.assets else frozenset()
    return sorted(assets.order, key=late.__contains__)


def _settle(
    directory: store.Store,
    computed: Mapping[str, Any],
    kept: Mapping[str, Any],
    causes: Mapping[str, str],
    laid: Mapping[str, overlay.Overlay],
    notes: list[str],
    stamp: str,
) -> Result:
    old = directory.state
    changed = sorted(name for name, mark in causes.items() if old.causes.get(name, mark) != mark)
    write: dict[str, bytes] = {}
    remove: list[str] = []
    base = dict(old.base)
    for part in laid.values():
        base = {path: mark for path, mark in base.items() if path not in part.remove}
        base.update(part.base)
        write.update(part.write)
        remove.extend(part.remove)
        replaced = [note.path for note in part.notes if note.verdict == "replaced"]
        for path, content in directory.read(replaced).items():
            write[f"replaced/{stamp}/{path}"] = content
        notes.extend(_word(note, changed, stamp) for note in part.notes)
    rewritten = sorted(path for path in write if path in old.base)
    if changed and rewritten:
        notes.append(f"made again, because {' and '.join(changed)} changed: {_some(rewritten)}")
    state = store.State(kept={n: _encode(v) for n, v in kept.items()}, base=base, causes={**old.causes, **causes})
    directory.commit(state, write, remove)
    return Result(computed, tuple(sorted(write)), tuple(notes))


def _recall(
    kind: type, make: Callable[..., Any], node: graph.Asset, parents: Mapping[str, Any], kept: Mapping[str, Any]
) -> tuple[Any, str | None]:
    """The kept value, or a new one; with the reason if the kept one had to go."""
    if node.name not in kept:
        return make(**parents), None
    stored = kept[node.name]
    value = kind.from_state(stored) if hasattr(kind, "from_state") else kind(**stored)
    reason = node.stale(value, **parents) if node.stale else None
    return (make(**parents), reason) if reason else (value, None)


def _encode(value: Any) -> Any:
    if hasattr(value, "to_state"):
        return value.to_state()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _owned(node: graph.Asset, path: str) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in node.files)


def _lay(node: graph.Asset, value: Any, directory: store.Store) -> overlay.Overlay:
    generated: values.Files = {node.files[0]: value} if isinstance(value, bytes) else value
    disk = directory.read(node.files)
    known = [*directory.state.base, *directory.state.pending]
    return overlay.lay(generated, disk, directory.base(disk, [path for path in known if _owned(node, path)]))


def _value(node: graph.Asset, effective: values.Files) -> Any:
    single = len(node.files) == 1 and not set("*?[") & set(node.files[0])
    return effective[node.files[0]] if single else dict(sorted(effective.items()))


def _word(note: overlay.Note, changed: list[str], stamp: str) -> str:
    cause = f" because {' and '.join(changed)} changed" if changed else ""
    match note.verdict:
        case "yours":
            return f"{note.path}: yours is used as it is"
        case "edited":
            return f"{note.path}: your edit is kept"
        case "deleted":
            return f"{note.path}: left out, because you deleted it"
        case "restored":
            return f"{note.path}: was gone, written again"
        case "obsolete":
            return f"{note.path}: removed, no longer needed{cause}"
        case "replaced":
            return f"{note.path}: your edit was replaced{cause}; your version is in replaced/{stamp}/{note.path}"


def _some(paths: list[str], most: int = 4) -> str:
    return ", ".join(paths) if len(paths) <= most else f"{', '.join(paths[:most])} and {len(paths) - most} more"
