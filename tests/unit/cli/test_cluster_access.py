"""The way to a cluster that is not to be had: each trouble in a sentence, with what to try next."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from moorage.cli import cluster_access, main
from moorage.installer import names
from moorage.machines.runtime import errors

FILE = Path("harbour/auth/kubeconfig")
ANOTHER = "give a kubeconfig of the cluster by --kubeconfig"
LOOK = f"kubectl --kubeconfig {FILE} get nodes"
REFUSED = (
    "HTTPSConnection(host='127.0.0.1', port=6443): Failed to establish a new connection: [Errno 111] Connection refused"
)
COMMANDS = pytest.mark.parametrize("command", [["machines"], ["machine-api", "run"]], ids=" ".join)


@pytest.mark.parametrize(
    ("refused", "message", "remedy"),
    [
        (
            errors.Unavailable(f"the API is out of reach: {REFUSED}", words=REFUSED),
            "is out of reach: 127.0.0.1:6443: Failed to establish a new connection: [Errno 111] Connection refused",
            LOOK,
        ),
        (
            errors.Unavailable("no", words="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
            "cannot be trusted: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate",
            f"somebody else may answer at its address; {ANOTHER}",
        ),
        (
            errors.Unavailable("the API refuses to list nodes (503: busy)", code=503, words="busy"),
            "is out of reach: busy",
            LOOK,
        ),
        (
            errors.Unauthorized("no", code=401, words="Unauthorized"),
            "does not accept its credentials",
            f"they may have expired; {ANOTHER}",
        ),
        (
            errors.Forbidden("no", code=403, words='User "dana" cannot list resource "machines"'),
            'does not permit that: User "dana" cannot list resource "machines"',
            f"ask for that right, or {ANOTHER}",
        ),
    ],
    ids=["nobody there", "a stranger", "in trouble", "expired", "forbidden"],
)
def test_what_a_cluster_says_is_told_with_the_next_thing_to_try(
    refused: errors.ApiError, message: str, remedy: str
) -> None:
    found = cluster_access.explained(refused, FILE)

    assert (found.message, found.remedy) == (f"the cluster of {FILE} {message}", remedy)


def test_anything_else_keeps_its_words() -> None:
    found = cluster_access.explained(errors.Invalid("the API refuses to list nodes (400: bad)", code=400), FILE)

    assert (found.message, found.remedy) == ("the API refuses to list nodes (400: bad)", LOOK)


def test_in_a_pod_nobody_is_told_to_give_a_kubeconfig_that_it_has_not() -> None:
    found = cluster_access.explained(errors.Unavailable("no", words="refused"), None)

    assert (found.message, found.remedy) == ("this pod's cluster is out of reach: refused", "see whether its API runs")


@COMMANDS
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there"),
        ("", "is empty"),
        ("{not: [yaml", "cannot be used: while parsing"),
        ("apiVersion: v1", "current-context"),
        ("[]", "it is not built like one"),
        ("hello", "it is not built like one"),
        ("{current-context: c, contexts: hello, clusters: hello}", "Expected key name"),
        (
            "{current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}], clusters: [1], users: []}",
            "it is not built like one",
        ),
        (b"\x8a\xff\x00", "it is not UTF-8"),
    ],
)
@pytest.mark.parametrize("resolver", ["", "127.0.0.1:1"], ids=["", "by a name server"])
def test_a_kubeconfig_that_is_none_is_told_in_a_line(
    command: list[str],
    content: str | bytes | None,
    said: str,
    resolver: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv(names.RESOLVER, resolver)
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    assert main.main([*command, "--kubeconfig", str(path)]) == 1

    error, remedy = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: the kubeconfig {path} ")
    assert said in error
    assert remedy == f"next: {ANOTHER}"


@COMMANDS
def test_without_any_cluster_it_is_said_where_one_was_looked_for(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    assert main.main(["--dir", str(tmp_path), *command]) == 1

    error, remedy = capsys.readouterr().err.splitlines()
    assert f"there is no {tmp_path / 'auth' / 'kubeconfig'}, and KUBECONFIG is not set" in error
    assert remedy == "next: give the folder of its installation by --dir, or its kubeconfig by --kubeconfig"


def test_a_name_that_the_chosen_server_does_not_know_is_told_with_what_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load(written(tmp_path / "kubeconfig").read_text())
    content["clusters"][0]["cluster"]["server"] = "https://api.berth.example.com:6443"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    monkeypatch.setenv(names.RESOLVER, "127.0.0.1:1")

    assert main.main(["machines", "--kubeconfig", str(tmp_path / "kubeconfig")]) == 1

    error, remedy = capsys.readouterr().err.splitlines()
    assert "api.berth.example.com" in error
    assert remedy == "next: see whether MOORAGE_RESOLVER=127.0.0.1:1 knows this cluster's names, or unset it"


def test_a_cluster_that_leads_nowhere_is_no_matter_if_another_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load(written(tmp_path / "kubeconfig").read_text())
    content["clusters"] += [{"name": "x", "cluster": {"server": "https://[::1"}}, {"name": "y", "cluster": {}}]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    monkeypatch.setenv(names.RESOLVER, "127.0.0.1:1")

    assert main.main(["machines", "--kubeconfig", str(tmp_path / "kubeconfig")]) == 1

    assert "is out of reach: 127.0.0.1:1: " in capsys.readouterr().err


@COMMANDS
def test_a_cluster_that_is_away_is_told_at_once(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "kubeconfig")

    assert main.main([*command, "--kubeconfig", str(path)]) == 1

    error, remedy = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith(f"error: the cluster of {path} is out of reach: 127.0.0.1:1: ")
    assert remedy == f"next: kubectl --kubeconfig {path} get nodes"


@COMMANDS
@pytest.mark.parametrize("missing", ["kubernetes", "prometheus_client"])
def test_what_is_not_installed_is_told_with_how_to_install_it(
    command: list[str],
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    assert main.main([*command, "--kubeconfig", str(written(tmp_path / "kubeconfig"))]) == 1

    error, remedy = capsys.readouterr().err.splitlines()
    assert error == f"error: this command needs {missing}, which is not installed"
    assert remedy == "next: pip install 'moorage[machines]'"


def test_several_kubeconfigs_in_the_environment_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for kubectl, which does not mind if some of them are missing either."""
    several = os.pathsep.join((str(tmp_path / "missing"), str(written(tmp_path / "kubeconfig"))))
    monkeypatch.setenv("KUBECONFIG", several)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main.main(["--dir", str(tmp_path), "machines"]) == 1, "it was found, and nobody is there"


@pytest.mark.parametrize("words", [["--workers", "0"], ["--workers", "many"], ["--workers", "-3"]])
def test_workers_are_a_number(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["machine-api", "run", *words])

    assert ended.value.code == 2
    assert f"{words[1]!r} is not a whole number of 1 or more" in capsys.readouterr().err


def written(path: Path) -> Path:
    """A kubeconfig of a cluster that is not there."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(content))
    return path
