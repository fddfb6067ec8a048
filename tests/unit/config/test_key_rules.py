"""Keys, pull secrets and certificates; none of their content ever comes back in a message."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import findings, key_rules

from .conftest import Check

NOW = datetime.datetime(2030, 6, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
SECRET = "hunter2hunter2"


def certificate(start: datetime.datetime, end: datetime.datetime) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "harbour")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(start)
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode()


def said(found: list[findings.Finding]) -> str:
    return "; ".join(f"{finding.severity} {finding.message}" for finding in found)


@pytest.mark.parametrize("name", ["ed25519", "ecdsa", "ecdsa521", "rsa"])
def test_real_public_keys_pass(ssh_keys: dict[str, str], name: str) -> None:
    assert list(key_rules.ssh_keys("sshKey", ssh_keys[name])) == []


def test_several_keys_with_comments_and_options_pass(ssh_keys: dict[str, str]) -> None:
    lines = f'{ssh_keys["rsa"]}\n\n  {ssh_keys["ed25519"]}\ncommand="echo ssh-rsa x" {ssh_keys["ecdsa"]}\n'

    assert list(key_rules.ssh_keys("sshKey", lines)) == []


def test_a_private_key_is_a_loud_error_that_does_not_repeat_it(ssh_keys: dict[str, str]) -> None:
    [finding] = key_rules.ssh_keys("sshKey", ssh_keys["private"])

    assert "PRIVATE key" in finding.message
    assert ssh_keys["private"].splitlines()[1] not in finding.message + finding.remedy


def test_a_key_of_one_kind_under_the_name_of_another_is_found(ssh_keys: dict[str, str]) -> None:
    renamed = ssh_keys["ed25519"].replace("ssh-ed25519", "ssh-rsa")

    [finding] = key_rules.ssh_keys("sshKey", renamed)

    assert finding.message == "says ssh-rsa but holds another kind of key"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "is not an OpenSSH public key"),
        ("ssh-rsa", "is not an OpenSSH public key"),
        ("ssh-foo AAAA", "is not an OpenSSH public key"),
        ("ssh-dss AAAAB3NzaC1kc3MAAACBAP", "DSA keys are refused"),
        ("ssh-ed25519 AAAA!", "not base64"),
        ("ssh-ed25519 " + base64.b64encode(b"\0\0\0\xffssh").decode(), "is cut off"),
        ("ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x01x").decode(), "not a complete Ed25519"),
        ("ssh-rsa " + base64.b64encode(b"\0\0\0\x07ssh-rsa\0\0\0\x01\x03").decode(), "not a complete RSA"),
    ],
)
def test_what_is_no_public_key(line: str, words: str) -> None:
    [finding] = key_rules.ssh_keys("sshKey", line)

    assert words in finding.message


def test_the_broken_key_among_several_is_named(ssh_keys: dict[str, str]) -> None:
    [finding] = key_rules.ssh_keys("sshKey", f"{ssh_keys['rsa']}\nnonsense\n")

    assert finding.message.startswith("key 2: ")


def test_a_short_rsa_key_is_a_warning(ssh_keys: dict[str, str]) -> None:
    [finding] = key_rules.ssh_keys("sshKey", ssh_keys["rsa1024"])

    assert (finding.severity, "1024 bits" in finding.message) == ("warning", True)


@pytest.mark.parametrize(("name", "fields"), [("ed25519", ["sshKey"]), ("rsa", []), ("ecdsa", [])])
def test_fips_takes_rsa_and_ecdsa_only(check: Check, ssh_keys: dict[str, str], name: str, fields: list[str]) -> None:
    found = check({"fips": True, "sshKey": ssh_keys[name]})

    assert [finding.field for finding in found] == fields


@given(st.integers(0, 60), st.binary(min_size=1, max_size=3))
def test_a_damaged_key_never_raises(place: int, damage: bytes) -> None:
    blob = bytearray(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32))
    blob[place : place + len(damage)] = damage

    list(key_rules.ssh_keys("sshKey", "ssh-ed25519 " + base64.b64encode(blob).decode()))


def auth(text: str) -> dict[str, Any]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (json.dumps({"auths": {"quay.io": auth(f"me:{SECRET}")}}), ""),
        (json.dumps({"auths": {"quay.io": {"credsStore": "x"}}}), ""),
        (json.dumps({"auths": {"quay.io": {"email": SECRET}}}), "neither"),
        (json.dumps({"auths": {"quay.io": {"auth": SECRET + "!"}}}), "not base64"),
        (json.dumps({"auths": {"quay.io": {"auth": 7}}}), "not the base64 of user:password"),
        (json.dumps({"auths": {"quay.io": auth(SECRET)}}), "not the base64 of user:password"),
        (json.dumps({"auths": {"quay.io": auth(f"{SECRET}:")}}), "not the base64 of user:password"),
        (json.dumps({"auths": {"quay.io": auth(f":{SECRET}")}}), "not the base64 of user:password"),
        (json.dumps({"auths": {"quay.io": SECRET}}), "not a JSON object"),
        (json.dumps({"auths": {}}), 'no "auths"'),
        (json.dumps({"auth": SECRET}), 'no "auths"'),
        (json.dumps([SECRET]), 'no "auths"'),
        ('{"auths": ' + SECRET, "is not JSON (character 11)"),
        ("", "is not JSON (character 1)"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_pull_secrets(secret: str, words: str) -> None:
    found = list(key_rules.pull_secret("pullSecret", secret))

    assert (words in said(found)) if words else (found == [])
    assert SECRET not in said(found)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (NOW - DAY, NOW + DAY, ""),
        (NOW - 2 * DAY, NOW - DAY, "warning certificate 1 expired on 2030-05-31"),
        (NOW + DAY, NOW + 2 * DAY, "warning certificate 1 is not valid before 2030-06-02"),
    ],
)
def test_certificates_are_valid_at_a_time(start: datetime.datetime, end: datetime.datetime, words: str) -> None:
    found = list(key_rules.trust_bundle("additionalTrustBundle", certificate(start, end), NOW))

    assert said(found) == words


def test_bundles_that_are_not_certificates(ssh_keys: dict[str, str]) -> None:
    good = certificate(NOW - DAY, NOW + DAY)
    table = {
        "words": "holds no PEM certificate",
        good.replace("\n", "", 1).replace("MII", "XXX"): "holds no PEM certificate",
        good.replace("MII", "MIX", 1): "certificate 1 cannot be read",
        good + "-----BEGIN CERTIFICATE-----\nMII\n": "has a block that does not end",
        good + ssh_keys["private"]: "PRIVATE key",
        good.replace("CERTIFICATE", "PUBLIC KEY"): "block 1 is a public key",
    }
    for bundle, words in table.items():
        assert words in said(list(key_rules.trust_bundle("b", bundle, NOW))), words


def test_a_bundle_with_comments_between_certificates_passes() -> None:
    good = certificate(NOW - DAY, NOW + DAY)

    assert list(key_rules.trust_bundle("b", f"# ours\n{good}# theirs\n{good}", NOW)) == []


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, ["additionalTrustBundle"]),
        ({"additionalTrustBundlePolicy": "Always"}, []),
        ({"proxy": {"httpProxy": "http://proxy.example.com:3128"}}, []),
        ({"additionalTrustBundlePolicy": "Always", "additionalTrustBundle": None}, ["additionalTrustBundlePolicy"]),
    ],
)
def test_bundle_and_policy_belong_together(check: Check, changes: dict[str, Any], fields: list[str]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    bundle = certificate(now - DAY, now + DAY)

    found = check({"additionalTrustBundle": bundle, **changes})

    assert [(finding.field, finding.severity) for finding in found] == [(field, "warning") for field in fields]
