"""What the engine knows of: by kind and id, in order, and as it was."""

from __future__ import annotations

import pytest

from moorage.lab.ovirt import faults, inventory


def test_things_have_ids_and_keep_their_order() -> None:
    known = inventory.Inventory()
    second = known.add("vms", {"name": "b", "cluster": {"id": "1"}})
    first = known.add("vms", {"id": "given", "name": "a", "cluster": {"id": "2"}})
    assert (len(second["id"]), first["id"]) == (36, "given")
    assert [each["name"] for each in known.all("vms")] == ["b", "a"]
    assert known.find("vms", cluster="2", name="a") == [first]
    assert known.find("vms", cluster="1", name="a") == []
    assert (known.named("vms", "b"), known.named("vms", "B")) == (second, None)
    known.remove("vms", "given")
    known.remove("vms", "given")
    with pytest.raises(faults.Fault) as missing:
        known.get("vms", "given")
    assert (missing.value.status, missing.value.detail) == (404, "")


def test_the_past_stays_as_it_was_however_deep_a_change_goes() -> None:
    known, task = inventory.Inventory(), object()
    vm = known.add("vms", {"id": "1", "rule": {"enforcing": True}, "_tags": ["a"], "_task": task})
    known.remember()
    vm["rule"]["enforcing"] = False
    vm["_tags"].append("b")
    known.add("vms", {"id": "2"})
    with inventory.in_the_past():
        assert known.all("vms") == [{"id": "1", "rule": {"enforcing": True}, "_tags": ["a"], "_task": task}]
        assert not known.has("vms", "2")
    assert (known.get("vms", "1")["rule"], len(known.all("vms"))) == ({"enforcing": False}, 2)


def test_who_knows_no_past_reads_what_is() -> None:
    known = inventory.Inventory()
    known.add("vms", {"id": "1"})
    with inventory.in_the_past():
        assert known.has("vms", "1")
