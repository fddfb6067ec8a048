"""Objects of built-in kinds, formats, patterns and quantities: read and spelled as a real server does.

The words in the tables were heard from a real server, version 1.33.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from moorage.lab.kube import builtin_kinds, formats, kinds, quantities, schema


def named(name: str) -> kinds.Kind:
    return next(kind for kind in builtin_kinds.kinds() if kind.name == name)


@pytest.mark.parametrize(("seconds", "fine"), [(1, True), (0, False), (-1, False)])
def test_a_lease_lasts_a_second_at_least(seconds: int, fine: bool) -> None:
    lease = named("Lease").schema
    assert lease is not None

    assert (schema.validate(lease, {"spec": {"leaseDurationSeconds": seconds}}) == []) == fine


POD = {"labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (
            "Deployment",
            {"spec": {"replicas": "3"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            {"spec": {"replicas": 1.5}},
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            {"spec": {"replicas": 3_000_000_000}},
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            {"spec": {"strategy": []}},
            "json: cannot unmarshal array into Go struct field DeploymentSpec.spec.strategy"
            " of type v1.DeploymentStrategy",
        ),
        (
            "Deployment",
            {"spec": {"template": {"metadata": {"labels": {"a": 1}}}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.spec.template.metadata.labels"
            " of type string",
        ),
        (
            "Service",
            {"spec": {"ports": [{"port": "80"}]}},
            "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            "PodDisruptionBudget",
            {"spec": {"minAvailable": True}},
            "json: cannot unmarshal bool into Go struct field PodDisruptionBudgetSpec.spec.minAvailable of type int32",
        ),
        (
            "Lease",
            {"spec": {"renewTime": "now"}},
            'parsing time "now" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "now" as "2006"',
        ),
        ("Secret", {"data": {"a": "&&"}}, "illegal base64 data at input byte 0"),
        (
            "ConfigMap",
            {"metadata": 3},
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
    ],
)
def test_a_built_in_object_of_wrong_types_cannot_be_read(kind: str, content: dict[str, Any], message: str) -> None:
    found = schema.undecodable(named(kind), content)

    assert found == f'{kind} in version "{named(kind).version}" cannot be handled as a {kind}: {message}'


def test_a_built_in_object_is_told_what_it_lacks() -> None:
    deployment = named("Deployment").schema
    assert deployment is not None
    containers = [{"name": "c"}, {"image": "y"}, {"name": "c", "image": "z"}]
    content: dict[str, Any] = {"spec": {"replicas": -1, "template": {"spec": {"containers": containers}}}}
    content["spec"]["template"]["spec"]["restartPolicy"] = "Sometimes"
    schema.apply_defaults(deployment, content)

    found = {cause.field: cause.message for cause in schema.validate(deployment, content)}

    assert found == {
        "spec.selector": "Required value",
        "spec.replicas": "Invalid value: -1: must be greater than or equal to 0",
        "spec.template.spec.containers[0].image": "Required value",
        "spec.template.spec.containers[1].name": "Required value",
        "spec.template.spec.containers[2].name": 'Duplicate value: "c"',
        "spec.template.spec.restartPolicy": (
            'Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"'
        ),
    }


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        ("date-time", "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z"),
        ("date", "2024-02-29", "2024-13-01"),
        ("duration", "1h30m", "5x"),
        ("ipv4", "127.0.0.1", "1.2.3"),
        ("ipv6", "::1", "127.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("hostname", "a-b.example", "a_b"),
        ("uri", "https://example.com", "example"),
        ("email", "a@b", "a"),
        ("mac", "00:11:22:33:44:55", "00:11"),
        ("uuid", "2f1b3c1e-0000-4000-8000-000000000000", "zz"),
        ("byte", "YWI=", "YWI"),
    ],
)
def test_a_format_is_kept_or_broken(format_: str, good: str, bad: str) -> None:
    assert formats.fits(format_, good)
    assert not formats.fits(format_, bad)


def test_patterns_are_read_as_go_reads_them() -> None:
    assert formats.pattern("^[[:alpha:]]+$").search("abc")
    assert not formats.pattern("^[[:alpha:]]+$").search("ab1")
    assert not formats.pattern(r"^\d$").search("\u0663"), "digits are ASCII"
    assert formats.pattern("[]$]").search("]")
    with pytest.raises(re.error):
        formats.pattern("(")


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.1", "100m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1000k", "1M"),
        ("12e3", "12e3"),
        ("0", "0"),
    ],
)
def test_a_quantity_has_one_spelling(written: str, canonical: str) -> None:
    assert quantities.canonical(written) == canonical
    assert quantities.canonical(canonical) == canonical


@pytest.mark.parametrize("written", ["", "one", "1 Gi", "1gi", "--1"])
def test_what_is_no_quantity_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantities.canonical(written)
