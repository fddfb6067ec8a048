"""The command line as its users' fingers know it: verbs, flags, streams, exit codes, bad days."""

from __future__ import annotations

import fcntl
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.cli import main
from tests.conftest import INSTALL_CONFIG, PULL_SECRET, SSH_KEY
from tests.unit.cli.program import moorage


def answer_flags(tmp_path: Path) -> list[str]:
    secret = tmp_path / "pull-secret.json"
    secret.write_text(PULL_SECRET)
    flags = {"cluster-name": "harbour", "base-domain": "example.com", "platform": "none", "pull-secret": f"@{secret}"}
    return [word for key, value in flags.items() for word in (f"--{key}", value)]


def test_from_answers_to_ignition(tmp_path: Path) -> None:
    directory = tmp_path / "new"

    made = moorage("create", "install-config", *answer_flags(tmp_path), "--ssh-key", SSH_KEY, "--dir", directory)
    assert made.returncode == 0, made.stderr
    assert moorage("--dir", directory, "validate").returncode == 0
    assert moorage("--dir", directory, "create", "manifests").returncode == 0
    done = moorage("create", "ignition-configs", "--dir", directory, "-o", "json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["cluster"] == "harbour.example.com"
    assert {"bootstrap.ign", "master.ign", "worker.ign", "metadata.json"} <= set(told["written"])
    assert json.loads((directory / "metadata.json").read_text())["infraID"] == told["infraID"]
    open_to_others = [p for p in directory.rglob("*") if stat.S_IMODE(p.stat().st_mode) & 0o077]
    assert open_to_others == []


def test_talk_goes_to_stderr_and_to_the_log_without_secrets(asset_dir: Path) -> None:
    done = moorage("create", "manifests", "--dir", asset_dir)

    assert done.stdout == ""
    assert "wrote manifests/" in done.stderr
    assert "next: moorage create ignition-configs" in done.stderr
    assert "\x1b" not in done.stderr
    log = (asset_dir / ".moorage.log").read_text()
    assert "wrote manifests/" in log
    for secret in ("very-secret", "c29tZWJvZHk6dmVyeS1zZWNyZXQ=", "PRIVATE KEY"):
        assert secret not in log + done.stderr


def test_unattended_names_everything_that_is_missing(tmp_path: Path) -> None:
    done = moorage("create", "install-config", "--dir", tmp_path)

    assert done.returncode == 3
    for key in ("platform", "base_domain", "cluster_name", "pull_secret"):
        assert f"{key}: is not answered" in done.stderr
    assert done.stderr.endswith("next: correct the fields above, then run: moorage create install-config\n")
    assert not (tmp_path / "install-config.yaml").exists()


def test_answers_come_from_file_and_environment_too(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PULL_SECRET)
    (tmp_path / "answers.yaml").write_text(
        f"cluster_name: from-file\nbase_domain: example.com\npull_secret: '@{tmp_path}/secret'\nplatform: none\n"
    )

    done = moorage(
        "create",
        "install-config",
        "--dir",
        tmp_path,
        "--answers",
        tmp_path / "answers.yaml",
        MOORAGE_BASE_DOMAIN="env.org",
    )

    assert done.returncode == 0, done.stderr
    text = (tmp_path / "install-config.yaml").read_text()
    assert "name: from-file" in text
    assert "baseDomain: env.org" in text


def test_answers_that_do_not_go_together_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PULL_SECRET)
    words = ("--platform", "none", "--cluster-name", "demo", "--base-domain", "example.com")
    secret = ("--pull-secret", f"@{tmp_path}/secret")

    done = moorage("create", "install-config", "--dir", tmp_path, *words, *secret, "--machine-network", "10.128.0.0/16")

    assert done.returncode == 3
    assert "error: the answers: networking.clusterNetwork[0].cidr: 10.128.0.0/14 overlaps" in done.stderr
    assert done.stderr.endswith(
        "1 error in the answers\nnext: correct the fields above, then run: moorage create install-config\n"
    )
    assert not (tmp_path / "install-config.yaml").exists()


def test_a_secret_on_the_command_line_is_refused(tmp_path: Path) -> None:
    done = moorage("create", "install-config", "--dir", tmp_path, "--pull-secret", PULL_SECRET)

    assert done.returncode == 3
    assert "does not belong on a command line" in done.stderr
    assert "very-secret" not in done.stderr
    assert "c29tZWJvZHk6" not in done.stderr


def test_an_install_config_is_never_overwritten(asset_dir: Path, tmp_path: Path) -> None:
    done = moorage("create", "install-config", "--dir", asset_dir, *answer_flags(tmp_path))

    assert done.returncode == 3
    assert "exists already" in done.stderr
    assert (asset_dir / "install-config.yaml").read_text() == INSTALL_CONFIG


def test_validate_json_for_scripts(asset_dir: Path) -> None:
    path = asset_dir / "install-config.yaml"
    path.write_text(INSTALL_CONFIG.replace("baseDomain: example.com", "baseDomian: example.com"))

    done = moorage("validate", "--dir", asset_dir, "-o", "json")

    assert done.returncode == 3
    findings = json.loads(done.stdout)
    (typo,) = findings
    assert typo["field"] == "baseDomian"
    assert set(typo) == {"field", "line", "message", "severity", "remedy"}
    assert typo["line"] == 2
    assert "baseDomain" in typo["remedy"]


def test_validate_reads_stdin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "validate", "-"],
        input=INSTALL_CONFIG,
        text=True,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_without_an_install_config_the_next_command_is_named(tmp_path: Path) -> None:
    done = moorage("create", "ignition-configs", "--dir", tmp_path)

    assert done.returncode == 3
    assert "moorage create install-config" in done.stderr
    assert list(tmp_path.iterdir()) == []


BAD_FILES = {
    "truncated": (INSTALL_CONFIG[:90] + '\npullSecret: "{', "line"),
    "tabs": (INSTALL_CONFIG.replace("  name: harbour", "\tname: harbour"), "tab"),
    "duplicate keys": (INSTALL_CONFIG + "baseDomain: example.org\n", "baseDomain"),
    "10 MB": (INSTALL_CONFIG + "# padding\n" * 1_000_000, "1 MiB"),
    "binary": ("\x00\x01\x02" + INSTALL_CONFIG, "install-config.yaml"),
    "empty": ("", "empty"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_told_and_change_nothing(asset_dir: Path, case: str) -> None:
    text, word = BAD_FILES[case]
    (asset_dir / "install-config.yaml").write_text(text)

    done = moorage("create", "ignition-configs", "--dir", asset_dir)

    assert done.returncode == 3, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert "very-secret" not in done.stderr
    assert {path.name for path in asset_dir.iterdir()} <= {"install-config.yaml", ".moorage.log"}


def test_a_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "install-config.yaml").mkdir()

    done = moorage("create", "manifests", "--dir", tmp_path)

    assert done.returncode == 3
    assert "directory" in done.stderr


def test_two_processes_in_one_directory(asset_dir: Path) -> None:
    with (asset_dir / ".moorage.lock").open("w") as held:
        held.write(json.dumps({"pid": 4711, "host": "elsewhere", "command": "moorage create", "started": "now"}))
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)

        done = moorage("create", "manifests", "--dir", asset_dir)

    assert done.returncode == 1
    assert "process 4711" in done.stderr
    assert not (asset_dir / "manifests").exists()


def test_a_state_from_the_future(asset_dir: Path) -> None:
    (asset_dir / ".moorage_state.json").write_text('{"schema": 99, "moorage": "9.9"}')

    done = moorage("create", "manifests", "--dir", asset_dir)

    assert done.returncode == 1
    assert "written by moorage 9.9" in done.stderr


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("kind", ["read-only", "full"])
def test_a_directory_that_cannot_be_written(asset_dir: Path, kind: str) -> None:
    """A mount of its own, in a namespace of its own: root is not stopped by permissions."""
    mount = {
        "read-only": 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"',
        "full": 'cp "$1"/install-config.yaml /dev/shm/$$ && mount -t tmpfs -o size=16k none "$1" && '
        'cp /dev/shm/$$ "$1"/install-config.yaml && rm /dev/shm/$$',
    }[kind]
    script = f'{mount} && "$2" -m moorage create ignition-configs --dir "$1"; code=$?; ls -A "$1" >&2; exit $code'

    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", asset_dir, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert {"read-only": "Read-only file system", "full": "No space left on device"}[kind] in done.stderr
    assert "--dir" in done.stderr
    assert "bootstrap.ign" not in done.stderr.splitlines()[2:]
    assert "Traceback" not in done.stderr


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("what", ["create ignition-configs", "create install-config", "create cluster", "validate"])
def test_a_directory_that_cannot_be_looked_into(asset_dir: Path, what: str) -> None:
    """As a user without root's powers, in a namespace of its own."""
    asset_dir.chmod(0)
    command = ["unshare", "--user", "--map-user=65534", sys.executable, "-m", "moorage", *what.split()]

    done = subprocess.run([*command, "--dir", asset_dir], capture_output=True, text=True, check=False)

    asset_dir.chmod(0o700)
    assert done.returncode in (1, 3)
    assert "Permission denied" in done.stderr
    assert "internal error" not in done.stderr
    assert "next:" in done.stderr


def test_an_unknown_verb_is_a_usage_error() -> None:
    done = moorage("craete")

    assert done.returncode == 2
    assert "create" in done.stderr


def test_explain_and_its_nearest_match() -> None:
    known = moorage("explain", "installconfig.networking.clusterNetwork.hostPrefix")
    unknown = moorage("explain", "installconfig.networking.clusterNetwrk")

    assert known.returncode == 0
    assert "23" in known.stdout
    assert unknown.returncode == 1
    assert "clusterNetwork" in unknown.stderr


@pytest.mark.parametrize(
    ("form", "start"), [("mermaid", "flowchart LR\n"), ("dot", "digraph assets {\n"), ("json", "[\n")]
)
def test_graph(form: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["graph", "-o", form]) == 0

    text = capsys.readouterr().out
    assert text.startswith(start)
    assert "bootstrap_ign" in text


def test_graph_json_has_the_edges(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["graph", "-o", "json"])

    nodes = {node["name"]: node for node in json.loads(capsys.readouterr().out)}
    assert "root_ca" in nodes["machine_config_server"]["needs"]
    assert nodes["install_config"]["input"]
    assert nodes["worker_ign"]["files"] == ["worker.ign"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["version", "-o", "json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["release"].startswith("4.20")
    assert told["releaseImage"]


def test_release_override_is_honoured(ready_dir: Path) -> None:
    image = "registry.example.com/ocp/release@sha256:" + "a" * 64

    done = moorage("create", "ignition-configs", "--dir", ready_dir, OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE=image)

    assert done.returncode == 0, done.stderr
    files = json.loads((ready_dir / "bootstrap.ign").read_text())["storage"]["files"]
    assert any(file["path"] == "/etc/moorage/bootstrap.env" for file in files)
    environment = next(file for file in files if file["path"] == "/etc/moorage/bootstrap.env")["contents"]["source"]
    import base64

    assert image in base64.b64decode(environment.partition(",")[2]).decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0

    text = capsys.readouterr().out
    for verb in ("ignition-configs", "validate", "explain", "--log-level"):
        assert verb.lstrip("-") in text


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("moorage cre", {"create"}),
        ("moorage create ", {"install-config", "manifests", "ignition-configs"}),
        ("moorage --dir x create ign", {"ignition-configs"}),
        ("moorage completion f", {"fish"}),
    ],
)
def test_bash_completes(line: str, expected: set[str]) -> None:
    script = moorage("completion", "bash").stdout
    words = line.split(" ")
    ask = f"""{script}
COMP_WORDS=({" ".join(f'"{word}"' for word in words)}); COMP_CWORD={len(words) - 1}
_moorage; printf '%s\\n' "${{COMPREPLY[@]}}" """

    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)

    assert expected <= set(done.stdout.split())


def test_an_internal_error_is_no_traceback_in_the_face(
    asset_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from moorage.installer import produce

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(produce, "produce", broken)

    assert main.main(["create", "manifests", "--dir", str(asset_dir)]) == 1

    said = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: made up" in said
    assert "Traceback" not in said
    assert "Traceback" in (asset_dir / ".moorage.log").read_text()


def test_help_says_what_the_folder_is_where_it_is_no_asset_directory(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str) -> str:
        with pytest.raises(SystemExit):
            main.main([*words, "--help"])
        return " ".join(capsys.readouterr().out.split())

    assert "--dir DIR folder of the demo (default: moorage-demo)" in told("demo")
    assert "default: ." not in told("demo")
    assert "--dir" not in told("lab") + told("lab", "start"), "the lab has none"
    assert "--dir DIR asset directory (default: .)" in told("machines")
    assert main.parser(["lab"]).parse_args(["--dir", "x", "lab", "stop", "--dir", "y"]).dir == "y", "taken all the same"


@pytest.mark.parametrize("words", [["--help"], ["create", "--help"], ["version", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom moorage.cli import main\n"
        f"try: main.main({words!r})\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'cryptography', 'rich', 'questionary', 'taskflow'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from moorage.cli import talk

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert talk.wants_colour(Terminal())  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not talk.wants_colour(Terminal())  # type: ignore[arg-type]
