"""Certificates of a cluster: files that are not what they should be, and those that it makes for itself."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moorage.lab.nodes import credentials, network

DAY = credentials.DAY
SIGNER = credentials.authority("signer", 10 * DAY)
OTHER = credentials.authority("other", 10 * DAY)


def leaf(pair: credentials.Pair) -> x509.Certificate:
    return credentials.certificates(pair.certificate, "x")[0]


def test_a_pair_that_belongs_together_is_taken() -> None:
    assert credentials.pair(SIGNER.certificate.encode(), SIGNER.key.encode(), "tls/signer") == SIGNER


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        (SIGNER.certificate, OTHER.key, "tls/x: tls: private key does not match public key"),
        ("", SIGNER.key, "tls/x.crt: "),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", SIGNER.key, "tls/x.crt: failed to parse"),
        (SIGNER.certificate, "nothing", "tls/x.key: failed to parse private key"),
    ],
)
def test_a_pair_that_does_not_is_named(certificate: str, key: str, words: str) -> None:
    with pytest.raises(credentials.Unusable) as told:
        credentials.pair(certificate.encode(), key.encode(), "tls/x")

    assert str(told.value).startswith(words)


def test_a_serving_certificate_is_believed_for_its_names_and_no_others() -> None:
    made = credentials.serving(SIGNER, "system:kube-apiserver", ["api.example.com", "127.0.0.1"], DAY)
    alternatives = leaf(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    leaf(made).verify_directly_issued_by(leaf(SIGNER))
    assert alternatives.get_values_for_type(x509.DNSName) == ["api.example.com"]
    assert [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    # Behind it comes its signer, so that those who only know the signer's own signer could follow.
    assert len(credentials.certificates(made.certificate, "x")) == 2
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    network.load_pair(server, made.certificate, made.key)


def test_a_certificate_does_not_outlive_its_signer() -> None:
    made = credentials.serving(SIGNER, "x", ["x"], 100 * DAY)

    assert leaf(made).not_valid_after_utc == leaf(SIGNER).not_valid_after_utc


def test_what_a_dead_signer_signs_is_dead() -> None:
    dead = credentials.authority("dead", datetime.timedelta(seconds=1))

    made = credentials.serving(dead, "x", ["x"], DAY)

    assert "is after" in credentials.expiry(made.certificate)


@pytest.mark.parametrize(("days", "worn", "why"), [(0, False, ""), (6, False, ""), (7, True, ""), (11, True, "after")])
def test_age(days: int, worn: bool, why: str) -> None:
    moment = credentials.now() + days * DAY

    assert credentials.worn(SIGNER.certificate, moment) == worn
    assert why in credentials.expiry(SIGNER.certificate, moment)
    assert bool(credentials.expiry(SIGNER.certificate, moment)) == bool(why)


def test_a_certificate_of_tomorrow_is_not_good_today() -> None:
    assert "is before" in credentials.expiry(SIGNER.certificate, credentials.now() - DAY)


def test_a_bundle_holds_each_authority_once() -> None:
    both = credentials.bundle(SIGNER.certificate, OTHER.certificate + SIGNER.certificate)

    assert [each.subject for each in credentials.certificates(both, "x")] == [leaf(SIGNER).subject, leaf(OTHER).subject]


def test_a_public_key_is_told_from_other_files() -> None:
    key = leaf(SIGNER).public_key()
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    credentials.public_key(pem, "sa.pub")
    with pytest.raises(credentials.Unusable, match=r"sa\.pub"):
        credentials.public_key(b"-----BEGIN PUBLIC KEY-----\n", "sa.pub")
