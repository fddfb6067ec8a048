"""What a node is told by its file."""

from __future__ import annotations

import dataclasses
import json

import pytest

from moorage import errors
from moorage import network as networks
from moorage.network import settings


def test_what_is_written_is_read(dual: settings.Settings) -> None:
    assert settings.from_json(dual.to_json()) == dual


def test_the_file_may_leave_out_what_has_a_default(wanted: settings.Settings) -> None:
    found = {
        key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(wanted).items()
    }
    for key in ("dns_vips", "image", "mdns"):
        del found[key]

    read = settings.from_mapping(found)

    assert read == wanted
    assert read.image == networks.IMAGE


def test_ipv6_addresses_are_spelled_as_everybody_spells_them(dual: settings.Settings) -> None:
    found = json.loads(dual.to_json()) | {"api_vips": ["FD00:0::5"]}

    assert settings.from_mapping(found).api_vips == ("fd00::5",)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"api_vips": []}, "api_vips is empty"),
        ({"ingress_vips": []}, "ingress_vips is empty"),
        ({"api_vips": ["10.0.0.6"]}, "10.0.0.6 is there twice"),
        ({"api_vips": ["10.0.0"]}, "api_vips: '10.0.0'"),
        ({"api_vips": "10.0.0.5"}, "api_vips must be a list"),
        ({"dns_vips": [5]}, "dns_vips must be a list"),
        ({"machine_networks": ["10.0.0.5/24"]}, "host bits"),
        ({"infra_id": ""}, "infra_id is ''"),
        ({"infra_id": "a {"}, "which is no name"),
        ({"cluster_domain": "a.example.com\nforward"}, "which is no name"),
        ({"cluster_domain": None}, "which is no name"),
        ({"mdns": "yes"}, "mdns true or false"),
        ({"image": ""}, "image must be a text"),
        ({"vip": "10.0.0.5"}, "unknown: vip"),
    ],
)
def test_nonsense_is_refused_with_the_file_and_the_field(
    wanted: settings.Settings, change: dict[str, object], why: str
) -> None:
    found = json.loads(wanted.to_json()) | change

    with pytest.raises(errors.ConfigError) as refused:
        settings.from_mapping(found, "/etc/here.json")

    assert refused.value.message.startswith("/etc/here.json: ")
    assert why in refused.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigError):
        settings.from_json(text)
