"""A sound install-config to change one field of, and a platform that uses every freedom a stanza has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pydantic
import pytest

from moorage.config import emit, findings, load, model, stanza, vip_rules
from moorage.platforms import registry

PULL_SECRET = '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}'

BASE: dict[str, Any] = {
    "apiVersion": "v1",
    "metadata": {"name": "demo"},
    "baseDomain": "example.com",
    "platform": {"none": {}},
    "pullSecret": PULL_SECRET,
}


class DockPlatform(model.Section):
    """Where ships are."""

    api_vips: Annotated[tuple[str, ...], model.about("The API's addresses.", alias="apiVIPs")] = ()
    ingress_vips: Annotated[tuple[str, ...], model.about("The routers' addresses.", alias="ingressVIPs")] = ()
    password: Annotated[pydantic.SecretStr, model.about("Opens the dock.")]
    berth: Annotated[pydantic.StrictInt | str, model.about("Number or name of the berth.")] = 1
    labels: Annotated[dict[str, str], model.about("Marks.")] = pydantic.Field(default_factory=dict)


class DockPool(model.Section):
    """How large the ships are."""

    cpus: Annotated[pydantic.StrictInt, model.about("Processors.", rule="at least 1"), pydantic.Field(ge=1)] = 4


def dock_rules(config: model.InstallConfig) -> Iterator[findings.Finding]:
    settings = config.platform.settings
    assert isinstance(settings, DockPlatform)
    api, ingress = "platform.dock.apiVIPs", "platform.dock.ingressVIPs"
    yield from vip_rules.vip_findings(api, settings.api_vips, config, required=False)
    yield from vip_rules.vip_findings(
        ingress, settings.ingress_vips, config, unlike={api: settings.api_vips}, required=False
    )


DOCK = stanza.Stanza(
    name="dock",
    title="A dock",
    platform=DockPlatform,
    machine_pool=DockPool,
    rules=(dock_rules,),
    credentials_modes=("Manual", "Mint"),
    architectures=("amd64", "ppc64le"),
    publish=("External", "Internal"),
    machine_network="192.168.0.0/24",
    ip_stacks=(("IPv4",), ("IPv4", "IPv6")),
    dotted_names=False,
    needs_ssh_key=True,
    required_capabilities=("CloudCredential",),
)

Make = Callable[..., str]
Check = Callable[..., list[findings.Finding]]


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The sound config with values set at dotted paths; None removes one."""
    data = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        holder = data
        for parent in parents:
            holder = holder.setdefault(parent, {})
        if value is None:
            holder.pop(last, None)
        else:
            holder[last] = value
    return data


@pytest.fixture
def stanzas() -> dict[str, stanza.Stanza]:
    return {**registry.stanzas(), "dock": DOCK}


@pytest.fixture
def make() -> Make:
    return lambda changes=None: emit.dump(changed(changes or {}))


@pytest.fixture
def check(make: Make, stanzas: dict[str, stanza.Stanza]) -> Check:
    return lambda changes=None: load.check(make(changes), stanzas)


@pytest.fixture
def parse(make: Make, stanzas: dict[str, stanza.Stanza]) -> Callable[..., model.InstallConfig]:
    return lambda changes=None: load.parse(make(changes), stanzas)[0]


@pytest.fixture(scope="session")
def ssh_keys() -> dict[str, str]:
    """Real keys, made by ssh-keygen's equals in the cryptography package."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    public, openssh = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    keys: dict[str, Any] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
        "ecdsa521": ec.generate_private_key(ec.SECP521R1()),
        "rsa": rsa.generate_private_key(65537, 2048),
        "rsa1024": rsa.generate_private_key(65537, 1024),  # noqa: S505 - the key that must be refused
    }
    lines = {name: key.public_key().public_bytes(openssh, public).decode() + " me@host" for name, key in keys.items()}
    lines["private"] = (
        keys["ed25519"]
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        .decode()
    )
    return lines
