"""Protobuf bodies: what programs in Go send is read as the JSON they would have sent."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.lab.kube import protobuf


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def sent(version: str, kind: str, *fields: bytes) -> dict[str, Any]:
    about = field(1, field(1, version) + field(2, kind))
    return protobuf.decoded(b"k8s\0" + about + field(2, b"".join(fields)) + field(3, "") + field(4, ""))


def test_a_config_map_is_read() -> None:
    meta = field(
        1,
        field(1, "cm")
        + field(2, "")
        + field(3, "ns")
        + field(7, 0)
        + field(8, b"")
        + field(11, field(1, "l") + field(2, "v")),
    )

    found = sent(
        "v1", "ConfigMap", meta, field(2, field(1, "k") + field(2, "v")), field(3, field(1, "b") + field(2, b"\0\1"))
    )

    assert found == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "ns", "labels": {"l": "v"}},
        "data": {"k": "v"},
        "binaryData": {"b": "AAE="},
    }


def test_a_pointer_to_zero_is_kept_and_a_plain_zero_is_not() -> None:
    # In a DeploymentSpec, replicas (1) is a pointer, minReadySeconds (5) is none.
    found = sent("apps/v1", "Deployment", field(2, field(1, 0) + field(5, 0) + field(7, 0)))

    assert found["spec"] == {"replicas": 0}


def test_numbers_quantities_and_times_have_their_own_spelling() -> None:
    port = field(1, "http") + field(4, field(1, 1) + field(2, 0) + field(3, "web"))
    other = field(4, field(1, 0) + field(2, 80) + field(3, ""))
    service = sent("v1", "Service", field(2, field(1, port) + field(1, other)))
    lease = sent("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 0) + field(2, 5000))))
    quota = sent("v1", "ResourceQuota", field(2, field(1, field(1, "cpu") + field(2, field(1, "500m")))))

    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["web", 80]
    assert lease["spec"]["renewTime"] == "1970-01-01T00:00:00.000005Z"
    assert quota["spec"]["hard"] == {"cpu": "500m"}


def test_inlined_structures_belong_to_the_object_around_them() -> None:
    volume = field(1, "v") + field(2, field(19, field(1, field(1, "cm"))))
    found = sent("v1", "Pod", field(2, field(1, volume)))

    assert found["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "cm"}}]


def test_negative_numbers_and_extras_are_read() -> None:
    review = sent(
        "authorization.k8s.io/v1", "SubjectAccessReview", field(2, field(5, field(1, "k") + field(2, field(1, "v"))))
    )
    pod = sent("v1", "Pod", field(2, field(4, -1)))

    assert review["spec"]["extra"] == {"k": ["v"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] == -1


def test_options_of_a_deletion_are_read_whatever_their_group() -> None:
    found = sent("policy/v1", "DeleteOptions", field(1, 0), field(4, "Background"))

    assert (found["gracePeriodSeconds"], found["propagationPolicy"]) == (0, "Background")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\0" + field(1, field(1, "v1") + field(2, "Nonsense")),
        b"k8s\0" + field(1, field(1, "v1") + field(2, "Pod")) + field(2, b"\x0a\xff"),
        b"k8s\0" + field(1, field(1, "v1") + field(2, "Pod")) + field(2, field(1, 7)),
        b"k8s\0\xff\xff",
        b"k8s\0" + field(1, field(1, "v1") + field(2, "Pod")) + field(2, b"\x0f"),
    ],
)
def test_what_is_no_object_is_unreadable(body: bytes) -> None:
    with pytest.raises(protobuf.Unreadable):
        protobuf.decoded(body)
