"""The state of the file cloud: things with ids, tags and states, in a JSON file, in cloud time.

Nothing here keeps two things of one name apart; lists hide a fresh thing for some reads and show a dead one for as
many; a thing in use cannot be deleted.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LATENCY = {"network": 2.0, "image": 5.0, "balancer": 10.0, "record": 1.0, "machine": 15.0}
DELETION = 10.0
PAGE = 2


class Refusal(Exception):  # noqa: N818 - a reply like any other
    """A reply that is not a good one."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Cloud:
    """All things there are. Its methods are called with the turn taken."""

    def __init__(self, path: Path, speed: float, network: str) -> None:
        self.turn = threading.RLock()
        self._path = path
        self._speed = speed
        self._network = network
        self.things: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = {}
        self.keys: dict[str, str] = {}
        self.made = 0
        self.reset({})
        if path.exists():
            self._load(json.loads(path.read_text()))

    def reset(self, settings: Mapping[str, Any]) -> None:
        """An empty cloud with ``most_machines``, ``lag`` (in reads), ``fail`` (name to words) as given."""
        self.settings = {"most_machines": 8, "lag": 0, "fail": {}, "stuck": [], **settings}
        self.things, self.keys, self.made = [], {}, 0
        self._save()

    # -- calls -------------------------------------------------------------------------------------------------------

    def create(self, kind: str, body: Mapping[str, Any], key: str) -> dict[str, Any]:
        if key in self.keys:
            return self._named(kind, self.keys[key])
        if kind not in LATENCY:
            raise Refusal(400, f"there is no kind {kind}")
        spec = dict(body["spec"])
        if kind == "machine" and len(self._living("machine")) >= self.settings["most_machines"]:
            raise Refusal(403, f"quota of {self.settings['most_machines']} machines is used up")
        for other, ident in spec.items():
            if other in LATENCY and self._named(other, ident)["state"] != "ready":
                raise Refusal(409, f"{other} {ident} is not ready")
        if words := self.settings["fail"].get(body["name"]):
            raise Refusal(400, words)
        self.made += 1
        ident = f"{kind[0]}-{self.made:04d}"
        thing = {"id": ident, "kind": kind, "name": body["name"], "tags": list(body["tags"]), "spec": spec}
        thing |= {"born": self.now(), "died": None, "unread": self.settings["lag"], "stale": 0}
        thing["address"] = f"{self._network}.{self.made}" if kind in ("balancer", "machine") else ""
        self.things.append(thing)
        self.keys[key] = ident
        self._save()
        return self._shown(thing)

    def delete(self, kind: str, ident: str) -> dict[str, Any]:
        thing = self._thing(kind, ident)
        if thing["name"] in self.settings["stuck"]:
            raise Refusal(409, f"{thing['name']} is locked by an operation of the provider")
        users = [other["name"] for other in self._all_living() if ident in other["spec"].values()]
        if users:
            raise Refusal(409, f"{thing['name']} is in use by {', '.join(users)}")
        if thing["died"] is None:
            thing["died"] = self.now()
            self._save()
        return self._shown(thing)

    def get(self, kind: str, ident: str) -> dict[str, Any]:
        return self._shown(self._thing(kind, ident))

    def list(self, kind: str, query: Mapping[str, str], *, stale: bool = False) -> dict[str, Any]:
        """A page of what matches; the filters are substrings, as a careless provider's are."""
        newest = max((thing["born"] for thing in self.things), default=0.0)
        found = []
        for thing in self.things:
            if thing["kind"] != kind or query.get("tag", "") not in " ".join(thing["tags"]):
                continue
            if query.get("name", "") not in thing["name"] or query.get("host", "") not in thing["spec"].get("host", ""):
                continue
            if self._listed(thing) and not (stale and thing["born"] == newest):
                found.append(self._shown(thing))
        first = int(query.get("page", "0"))
        rest = str(first + PAGE) if len(found) > first + PAGE else None
        return {"items": found[first : first + PAGE], "next": rest}

    def limits(self) -> dict[str, Any]:
        return {"machines": {"used": len(self._living("machine")), "most": self.settings["most_machines"]}}

    # -- for tests ---------------------------------------------------------------------------------------------------

    def inventory(self) -> list[dict[str, Any]]:
        """What exists, without what differs between two equal clouds: ids, addresses and times."""
        names = {thing["id"]: thing["name"] for thing in self.things}
        found = []
        for thing in self._all_living():
            spec = {key: self._comparable(names, value) for key, value in thing["spec"].items() if key != "address"}
            found.append({"kind": thing["kind"], "name": thing["name"], "tags": sorted(thing["tags"]), "spec": spec})
        return sorted(found, key=json.dumps)

    def _comparable(self, names: Mapping[str, str], value: str) -> str:
        return names.get(value, value if len(value) < 100 else hashlib.sha256(value.encode()).hexdigest())

    def ready(self, kind: str, tag: str) -> list[dict[str, Any]]:
        return [
            thing for thing in self._living(kind) if tag in thing["tags"] and self._shown(thing)["state"] == "ready"
        ]

    # -- inside ------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.time() * self._speed

    def _all_living(self) -> list[dict[str, Any]]:
        return [thing for thing in self.things if not self._gone(thing)]

    def _living(self, kind: str) -> list[dict[str, Any]]:
        return [thing for thing in self._all_living() if thing["kind"] == kind]

    def _gone(self, thing: Mapping[str, Any]) -> bool:
        return thing["died"] is not None and self.now() - thing["died"] >= DELETION

    def _listed(self, thing: dict[str, Any]) -> bool:
        if self._gone(thing):
            thing["stale"] += 1
            return bool(thing["stale"] <= self.settings["lag"])
        if thing["unread"]:
            thing["unread"] -= 1
            return False
        return True

    def _shown(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        young = self.now() - thing["born"] < LATENCY[thing["kind"]]
        state = "deleting" if thing["died"] is not None else "creating" if young else "ready"
        shown = {key: thing[key] for key in ("id", "name", "tags", "address")} | {"state": state}
        return shown | {"spec": {key: value for key, value in thing["spec"].items() if key != "data"}}

    def _thing(self, kind: str, ident: str) -> dict[str, Any]:
        for thing in self._living(kind):
            if thing["id"] == ident:
                return thing
        raise Refusal(404, f"there is no {kind} {ident}")

    def _named(self, kind: str, ident: str) -> dict[str, Any]:
        return self._shown(self._thing(kind, ident))

    def _save(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"things": self.things, "settings": self.settings, "made": self.made}))
        new.replace(self._path)

    def _load(self, state: Mapping[str, Any]) -> None:
        self.things, self.settings, self.made = state["things"], state["settings"], state["made"]
