"""The engine's documents against the vendor's own readers and writers, which know the wire best."""

from __future__ import annotations

import datetime
import io
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies
from ovirtsdk4 import reader, types, writer, xml

# The SDK registers its readers and writers when these are imported.
from ovirtsdk4 import readers, writers  # noqa: F401 # isort: skip

from moorage.lab.ovirt import documents, faults, links


def written(thing: Any) -> bytes:
    """What the SDK sends."""
    return writer.Writer.write(thing, indent=True).encode()


def read(content: bytes) -> Any:
    """What the SDK makes of an answer."""
    return reader.Reader.read(xml.XmlReader(io.BytesIO(content)))


def test_a_machine_as_the_sdk_writes_it() -> None:
    tag, doc = documents.parsed(
        written(
            types.Vm(
                name="123",
                memory=8 * 1024**3,
                type=types.VmType.HIGH_PERFORMANCE,
                cluster=types.Cluster(id="c1"),
                template=types.Template(name="rhcos"),
                cpu=types.Cpu(topology=types.CpuTopology(cores=4, sockets=2, threads=1)),
                memory_policy=types.MemoryPolicy(guaranteed=1024, max=2048, ballooning=False),
                initialization=types.Initialization(custom_script='{"a": "<&>\\n"}', host_name="m-0"),
                custom_properties=[types.CustomProperty(name="hugepages", value="2048")],
                disk_attachments=[
                    types.DiskAttachment(
                        disk=types.Disk(
                            format=types.DiskFormat.COW, sparse=True, storage_domains=[types.StorageDomain(id="s1")]
                        )
                    )
                ],
                os=types.OperatingSystem(
                    type="rhcos_x64", boot=types.Boot(devices=[types.BootDevice.HD, types.BootDevice.NETWORK])
                ),
                placement_policy=types.VmPlacementPolicy(affinity=types.VmAffinity.MIGRATABLE),
            )
        )
    )
    assert tag == "vm"
    assert doc == {
        "name": "123",
        "memory": 8 * 1024**3,
        "type": "high_performance",
        "cluster": {"id": "c1"},
        "template": {"name": "rhcos"},
        "cpu": {"topology": {"cores": 4, "sockets": 2, "threads": 1}},
        "memory_policy": {"guaranteed": 1024, "max": 2048, "ballooning": False},
        "initialization": {"custom_script": '{"a": "<&>\\n"}', "host_name": "m-0"},
        "custom_properties": [{"name": "hugepages", "value": "2048"}],
        "disk_attachments": [{"disk": {"format": "cow", "sparse": True, "storage_domains": [{"id": "s1"}]}}],
        "os": {"type": "rhcos_x64", "boot": {"devices": ["hd", "network"]}},
        "placement_policy": {"affinity": "migratable"},
    }


def test_an_action_and_a_group_as_the_sdk_writes_them() -> None:
    assert documents.parsed(written(types.Action(use_initialization=True, force=False))) == (
        "action",
        {"use_initialization": True, "force": False},
    )
    tag, doc = documents.parsed(
        written(types.AffinityGroup(name="g", priority=5.0, vms_rule=types.AffinityRule(enabled=True)))
    )
    assert (tag, doc) == ("affinity_group", {"name": "g", "priority": 5.0, "vms_rule": {"enabled": True}})


def test_what_is_the_engines_own_never_leaves_it() -> None:
    doc = {"id": "1", "name": "a", "_secret": "s3cret", "cluster": {"id": "2", "_inner": "s3cret"}, "_tags": ["s3cret"]}
    content = documents.xml("vm", doc)
    assert b"s3cret" not in content
    vm = read(content)
    assert (vm.id, vm.href, vm.cluster.href) == ("1", "/ovirt-engine/api/vms/1", "/ovirt-engine/api/clusters/2")


def test_the_sdk_reads_what_the_engine_writes() -> None:
    when = datetime.datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=datetime.UTC)
    doc = {
        "id": "1",
        "name": "m",
        "status": "image_locked",
        "memory": 4096,
        "creation_time": when,
        "delete_protected": False,
        "description": None,
        "initialization": {"custom_script": "a\x00\x08b"},
        "custom_properties": [{"name": "hugepages", "value": "2048"}],
        "nics": [{"id": "n", "vm": {"id": "1"}, "reported_devices": [{"id": "d", "ips": [{"address": "10.0.0.1"}]}]}],
    }
    [vm] = read(documents.xml("vms", [doc]))
    assert (vm.status, vm.memory, vm.delete_protected) == (types.VmStatus.IMAGE_LOCKED, 4096, False)
    assert vm.creation_time.replace(tzinfo=datetime.UTC) == when
    assert (vm.description, vm.initialization.custom_script) == (None, "ab")
    assert vm.custom_properties[0].value == "2048"
    assert vm.nics[0].href == "/ovirt-engine/api/vms/1/nics/n"
    assert vm.nics[0].reported_devices[0].ips[0].address == "10.0.0.1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<vm><memory>much</memory></vm>", "The value 'much' isn't a valid integer"),
        (b"<vm><stateless>perhaps</stateless></vm>", "The value 'perhaps' isn't a valid boolean"),
        (b"<affinity_group><priority>high</priority></affinity_group>", "isn't a valid decimal"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(faults.Fault) as refused:
        documents.parsed(content)
    assert (refused.value.status, refused.value.reason) == (400, "Invalid value")
    assert words in refused.value.detail


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("vms", "vm"),
        ("custom_properties", "custom_property"),
        ("ips", "ip"),
        ("storage_domains", "storage_domain"),
        ("addresses", "address"),
        ("address", "address"),
        ("status", "status"),
        ("affinity_groups", "affinity_group"),
    ],
)
def test_one_of_many(many: str, one: str) -> None:
    assert links.singular(many) == one


_TEXT = strategies.text(
    strategies.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1
)


@hypothesis.given(name=_TEXT, description=_TEXT)
def test_texts_come_back_as_they_were_sent(name: str, description: str) -> None:
    sent = documents.xml("tag", {"id": "1", "name": name, "description": description})
    tag = read(sent)
    assert (tag.name, tag.description) == (name, description)
    _, doc = documents.parsed(sent)
    assert (doc["name"], doc["description"]) == (name, description)
