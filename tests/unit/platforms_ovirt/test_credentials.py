"""The credentials file: found, read, refused and written, without ever telling what is in it."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage import errors
from moorage.engine import secret
from moorage.platforms.ovirt import credentials

PASSWORD = "s3cr3t: #hunter2"
GOOD = {
    "ovirt_url": "https://engine.example.com/ovirt-engine/api",
    "ovirt_username": "admin@internal",
    "ovirt_password": PASSWORD,
}


@pytest.fixture(scope="module")
def authority() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "engine CA")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def put(path: Path, content: dict[str, object] | str, mode: int = 0o600) -> dict[str, str]:
    """The environment of a user who has such a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    path.chmod(mode)
    return {"OVIRT_CONFIG": str(path)}


def test_the_file_that_the_environment_names_is_read(tmp_path: Path) -> None:
    environ = put(tmp_path / "mine.yaml", GOOD)

    found = credentials.read(environ)

    assert found == credentials.Credentials(
        url="https://engine.example.com/ovirt-engine/api",
        username="admin@internal",
        password=secret.Secret(PASSWORD),
        path=tmp_path / "mine.yaml",
    )
    assert found.fqdn == "engine.example.com"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/anna"}, "/home/anna/.ovirt/ovirt-config.yaml"),
        ({"HOME": "/home/anna", "OVIRT_CONFIG": ""}, "/home/anna/.ovirt/ovirt-config.yaml"),
        ({"HOME": "/home/anna", "OVIRT_CONFIG": "~/other.yaml"}, "/home/anna/other.yaml"),
        ({"HOME": "/home/anna", "OVIRT_CONFIG": "/etc/ovirt.yaml"}, "/etc/ovirt.yaml"),
    ],
)
def test_where_the_file_is_looked_for(environ: dict[str, str], expected: str) -> None:
    assert credentials.location(environ) == Path(expected)


@pytest.mark.parametrize(
    ("change", "url"),
    [
        ({"ovirt_url": "https://e.example.com/ovirt-engine/api/"}, "https://e.example.com/ovirt-engine/api"),
        ({"ovirt_url": "https://e.example.com:8443"}, "https://e.example.com:8443/ovirt-engine/api"),
        ({"ovirt_url": "", "ovirt_fqdn": "e.example.com:8443"}, "https://e.example.com:8443/ovirt-engine/api"),
        ({"ovirt_url": None, "ovirt_fqdn": "e.example.com"}, "https://e.example.com/ovirt-engine/api"),
    ],
)
def test_the_address_is_made_complete(tmp_path: Path, change: dict[str, object], url: str) -> None:
    assert credentials.read(put(tmp_path / "c.yaml", {**GOOD, **change})).url == url


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "c.yaml"

    with pytest.raises(errors.ConfigError) as refusal:
        credentials.read(put(path, GOOD, mode))

    assert refusal.value.remedy == f"chmod 600 {path}"
    assert f"{mode:04o}" in refusal.value.message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({**GOOD, "ovirt_url": ""}, "ovirt_url is missing"),
        ({**GOOD, "ovirt_url": "http://engine.example.com/ovirt-engine/api"}, "not an https:// address"),
        ({**GOOD, "ovirt_url": "https://admin:hunter2@engine/ovirt-engine/api"}, "holds a user name"),
        ({**GOOD, "ovirt_url": "https://engine:notaport/"}, "not a URL"),
        ({**GOOD, "ovirt_username": None}, "ovirt_username is missing"),
        ({**GOOD, "ovirt_password": ""}, "ovirt_password is missing"),
        ({**GOOD, "ovirt_password": 12345678}, "ovirt_password: not a string"),
        ({**GOOD, "ovirt_insecure": "no"}, "ovirt_insecure is neither true nor false"),
        ({**GOOD, "ovirt_ca_bundle": "-----BEGIN LIES-----"}, "no certificates in PEM form"),
        ({**GOOD, "ovirt_cafile": "gone.pem"}, "gone.pem cannot be read"),
        (f"ovirt_password: [{PASSWORD}\nx: y: z", "is not YAML"),
        (f"- {PASSWORD}", "holds no mapping"),
    ],
)
def test_a_wrong_file_is_explained_without_the_password(
    tmp_path: Path, content: dict[str, object] | str, says: str
) -> None:
    with pytest.raises(errors.ConfigError) as refusal:
        credentials.read(put(tmp_path / "c.yaml", content))

    assert says in refusal.value.message
    assert refusal.value.remedy
    shown = f"{refusal.value.message} {refusal.value.remedy} {refusal.value.__cause__!r}"
    assert "hunter2" not in shown
    assert "12345678" not in shown


def test_no_file_says_where_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="does not exist") as refusal:
        credentials.read({"HOME": str(tmp_path)})

    assert str(tmp_path / ".ovirt/ovirt-config.yaml") in refusal.value.message
    assert "moorage create install-config" in refusal.value.remedy


def test_the_authority_is_taken_from_the_bundle_or_from_the_file_it_lies_in(tmp_path: Path, authority: str) -> None:
    (tmp_path / "ca.pem").write_text(authority)

    by_path = credentials.read(put(tmp_path / "a.yaml", {**GOOD, "ovirt_cafile": "ca.pem"}))
    by_text = credentials.read(put(tmp_path / "b.yaml", {**GOOD, "ovirt_ca_bundle": authority, "ovirt_cafile": "no"}))

    assert by_path.ca_bundle == by_text.ca_bundle == authority


def test_the_password_does_not_show(tmp_path: Path) -> None:
    found = credentials.read(put(tmp_path / "c.yaml", GOOD))

    assert "hunter2" not in f"{found} {found!r} {found.password}"
    with pytest.raises(TypeError):
        pickle.dumps(found)


def test_what_is_written_is_read_again_and_nobody_else_can(tmp_path: Path, authority: str) -> None:
    path = tmp_path / "new" / "folder" / "c.yaml"
    wanted = credentials.Credentials(
        "https://e.example.com:8443/ovirt-engine/api", "admin@internal", secret.Secret(PASSWORD), authority, path=path
    )

    assert credentials.write(path, wanted)

    assert credentials.read({"OVIRT_CONFIG": str(path)}) == wanted
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["c.yaml"]


def test_the_same_credentials_are_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    wanted = credentials.Credentials("https://e/ovirt-engine/api", "admin@internal", secret.Secret(PASSWORD))
    credentials.write(path, wanted)
    before = path.stat().st_ino

    assert not credentials.write(path, wanted)
    assert path.stat().st_ino == before


def test_somebodys_other_file_is_replaced_only_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    put(path, GOOD)
    wanted = credentials.Credentials("https://e/ovirt-engine/api", "anna@internal", secret.Secret(PASSWORD))

    with pytest.raises(errors.ConfigError, match="holds other credentials"):
        credentials.write(path, wanted)
    assert yaml.safe_load(path.read_text()) == GOOD

    assert credentials.write(path, wanted, replace=True)
    assert credentials.read({"OVIRT_CONFIG": str(path)}).username == "anna@internal"
