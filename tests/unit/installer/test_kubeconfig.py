"""The kubeconfig: which access it gives, and how it learns to trust the ingress without losing the user's edits."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from moorage.assets import keys
from moorage.installer import kubeconfig
from tests.unit.installer import fake_cluster


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> fake_cluster.Built:
    return fake_cluster.build(tmp_path_factory.mktemp("kubeconfig") / "cluster", keyring)


@pytest.fixture
def path(built: fake_cluster.Built, tmp_path: Path) -> Path:
    copy = tmp_path / "auth" / "kubeconfig"
    copy.parent.mkdir(mode=0o700)
    shutil.copy(built.directory / kubeconfig.FILE, copy)
    return copy


@pytest.fixture(scope="module")
def router() -> str:
    return fake_cluster.authority("ingress-operator@1").split("-----BEGIN PRIVATE")[0]


def trusted(path: Path, cluster: str = "harbour") -> list[x509.Certificate]:
    entries = {entry["name"]: entry["cluster"] for entry in yaml.safe_load(path.read_text())["clusters"]}
    return x509.load_pem_x509_certificates(base64.b64decode(entries[cluster]["certificate-authority-data"]))


def test_our_own_context_counts_even_after_a_login_elsewhere(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    content["clusters"].append({"name": "other", "cluster": {"server": "https://other.example.com:6443"}})
    content["users"].append({"name": "dev", "user": {"token": "sha256~abc"}})
    content["contexts"].append({"name": "dev", "context": {"cluster": "other", "user": "dev"}})
    content["current-context"] = "dev"
    path.write_text(yaml.safe_dump(content))

    found = kubeconfig.read(path)

    assert (found.host, found.port) == (fake_cluster.API, 6443)
    assert "sha256~abc" not in found.token


def test_a_renamed_context_is_used_when_it_is_the_current_one(path: Path) -> None:
    path.write_text(path.read_text().replace("name: admin", "name: me").replace("user: admin", "user: me"))
    path.write_text(path.read_text().replace("current-context: admin", "current-context: me"))

    assert kubeconfig.read(path).host == fake_cluster.API


def test_keys_do_not_show_in_the_repr(path: Path) -> None:
    assert "PRIVATE KEY" not in repr(kubeconfig.read(path))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("server: https", "server: http", "is not an https address"),
        (":6443", ":port", "is not an https address"),
        ("current-context", "[", "it is not YAML"),
        ("contexts:", "texts:", "it has no context"),
        ("cluster: harbour", "cluster: haven", "names 'haven', which is not there"),
        ("server:", "proxy-url: http://p\n    server:", "proxy-url is not supported"),
        ("server:", "insecure-skip-tls-verify: true\n    server:", "insecure-skip-tls-verify is not supported"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(old: str, new: str, words: str, path: Path) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))

    with pytest.raises(kubeconfig.KubeconfigError, match=words) as caught:
        kubeconfig.read(path)

    assert "moorage create ignition-configs" in caught.value.remedy


def test_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(kubeconfig.KubeconfigError, match="there is no"):
        kubeconfig.read(tmp_path / "auth" / "kubeconfig")


def test_the_ingress_is_trusted_once_however_often_it_is_asked(path: Path, router: str) -> None:
    before = trusted(path)

    assert kubeconfig.trust(path, router) is True
    once = path.read_bytes()
    assert kubeconfig.trust(path, router) is False

    assert path.read_bytes() == once
    assert trusted(path) == [*before, x509.load_pem_x509_certificate(router.encode())]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_all_else_stays_to_the_byte(path: Path, router: str) -> None:
    edited = "# mine, do not touch\n" + path.read_text().replace("preferences: {}", "preferences: {colors: true}  # !")
    path.write_text(edited)
    authority = yaml.safe_load(edited)["clusters"][0]["cluster"]["certificate-authority-data"]

    kubeconfig.trust(path, router)

    after = path.read_text()
    renewed = yaml.safe_load(after)["clusters"][0]["cluster"]["certificate-authority-data"]
    assert after == edited.replace(authority, renewed)
    assert "# mine, do not touch" in after


@pytest.mark.parametrize("style", ["json", "single", "literal"])
def test_other_spellings_of_the_same_file(style: str, path: Path, router: str) -> None:
    content = yaml.safe_load(path.read_text())
    authority = content["clusters"][0]["cluster"]["certificate-authority-data"]
    if style == "json":
        path.write_text(json.dumps(content))
    elif style == "single":
        path.write_text(path.read_text().replace(authority, f"'{authority}'"))
    else:
        path.write_text(path.read_text().replace(authority, f"|\n      {authority}"))

    kubeconfig.trust(path, router)

    after = yaml.safe_load(path.read_text())
    assert trusted(path)[-1] == x509.load_pem_x509_certificate(router.encode())
    assert after["clusters"][0]["cluster"]["server"] == content["clusters"][0]["cluster"]["server"]
    assert after["users"] == content["users"]


def test_only_entries_of_this_cluster_learn_it(path: Path, router: str) -> None:
    content = yaml.safe_load(path.read_text())
    authority = content["clusters"][0]["cluster"]["certificate-authority-data"]
    for name, server in (("login", f"https://{fake_cluster.API}:6443"), ("other", "https://other.example.com:6443")):
        cluster = {"server": server, "certificate-authority-data": authority}
        content["clusters"].append({"name": name, "cluster": cluster})
    path.write_text(yaml.safe_dump(content))

    kubeconfig.trust(path, router)

    assert len(trusted(path, "harbour")) == len(trusted(path, "login")) == len(trusted(path, "other")) + 1


def test_a_link_stays_a_link(path: Path, router: str, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    path.rename(real)
    path.symlink_to(real)

    kubeconfig.trust(path, router)

    assert path.is_symlink()
    assert trusted(real)[-1] == x509.load_pem_x509_certificate(router.encode())


def test_what_is_no_certificate_changes_nothing(path: Path) -> None:
    before = path.read_bytes()

    with pytest.raises(kubeconfig.KubeconfigError, match="holds no certificate"):
        kubeconfig.trust(path, "not PEM")

    assert path.read_bytes() == before
