"""What a script can tell from the exit code alone, as docs/exit-codes.md promises it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage import errors
from moorage.cli import main
from moorage.installer import names
from moorage.machines.runtime import serving

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"
KUBECONFIG = "auth/kubeconfig"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        # A way to the cluster that is missing or no good is nobody's install-config, whatever the command.
        (["machines"], 1),
        (["machine-api", "run"], 1),
        (["wait-for", "install-complete"], 1),
        (["machines", "--kubeconfig", "missing"], 1),
        (["machine-api", "run", "--kubeconfig", "missing"], 1),
        (["machines", "--kubeconfig", "list"], 1),
        (["machine-api", "run", "--kubeconfig", "list"], 1),
        (["wait-for", "install-complete", "--dir", "broken"], 1),
        # What was put in and cannot be used: files, answers, credentials, variables, flags that need another.
        (["validate"], 3),
        (["plan"], 3),
        (["create", "install-config", "--answers", "missing"], 3),
        (["destroy", "cluster", "--infra-id", "harbour-x7k2p"], 3),
        (["destroy", "cluster", "--platform", "ovirt"], 3),
        (["destroy", "cluster", "--infra-id", "harbour-x7k2p", "--platform", "ovirt"], 3),
        ([f"{names.RESOLVER}=nobody:0", "machines", "--kubeconfig", "good"], 3),
        (["MOORAGE_STREAM=none", "version"], 3),
        (["MOORAGE_CLOCK_SPEED=fast", "machines"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_code_of_what_cannot_be_used(
    words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "OVIRT_CONFIG", names.RESOLVER, "MOORAGE_CLOCK_SPEED"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "broken" / "auth").mkdir(parents=True)
    for path in ("list", f"broken/{KUBECONFIG}"):
        (tmp_path / path).write_text("[]")
    (tmp_path / "good").write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],"
        " clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
    )
    if "=" in words[0]:
        monkeypatch.setenv(*words[0].split("=", 1))
        words = words[1:]

    assert main.main(words) == code

    said = capsys.readouterr().err
    assert "internal error" not in said
    assert "next: " in said


def test_an_address_for_metrics_that_is_none_is_wrong_input() -> None:
    with pytest.raises(errors.ConfigError) as wrong:
        serving.address("nonsense")

    assert wrong.value.exit_code == 3


def test_the_page_has_them_all() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d) \|", PAGE.read_text(), re.MULTILINE)}

    known = (value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int))
    assert listed == {0, 2, *known}


def test_the_remedy_for_missing_answers_is_not_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["create", "install-config", "--dir", str(tmp_path), "--answers", str(tmp_path / "nope")])

    assert "next: name the file of the answers with --answers" in capsys.readouterr().err
