"""The platform's credentials in a cluster: where they are found, how they change, and that none is lost or shown."""

from __future__ import annotations

import base64
import datetime
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import credentials, overview
from moorage.machines.runtime import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import cluster_credentials
from moorage.platforms.ovirt import credentials as ovirt
from tests.unit.cli.quay import machine as quay
from tests.unit.machines import machine_world

WANTED = contract.Machine("m-1", "berth-x7k2p", "worker", {}, b"")


class Scene:
    """A cluster's Secrets, by namespace; ``away`` is why they cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.clock = clocks.ManualClock()
        self.secrets: dict[str, dict[str, str]] = {}
        self.away: Exception | None = None
        self.reads: list[str] = []
        self.folder = folder
        (folder / "password").write_text("first")
        self.keyring = credentials.Keyring("quay", self.read, self.clock, environ={"QUAY_FOLDER": str(folder)})
        self.actuator = credentials.Rotating(self.keyring)

    def read(self, namespace: str, name: str) -> dict[str, Any]:
        self.reads.append(f"{namespace}/{name}")
        if self.away is not None:
            raise self.away
        if namespace not in self.secrets:
            raise errors.NotFound("there is none", code=404)
        return {
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in self.secrets[namespace].items()}
        }

    def later(self) -> None:
        self.clock.advance(credentials.EVERY)

    @property
    def password(self) -> Path:
        current = self.keyring.current()
        assert isinstance(current, quay.Actuator)
        return current._password


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("MOORAGE_PLATFORMS", "quay=tests.unit.cli.quay")
    made = Scene(tmp_path)
    yield made
    made.keyring.close()


def test_the_machine_controllers_own_secret_comes_first(scene: Scene) -> None:
    scene.secrets = {"openshift-machine-api": {"password": "own"}, "kube-system": {"password": "common"}}

    assert scene.password.read_text() == "own"


def test_else_the_clusters(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "common"}}

    assert scene.password.read_text() == "common"
    assert scene.reads == ["openshift-machine-api/quay-credentials", "kube-system/quay-credentials"]


def test_else_those_of_the_environment_until_there_is_a_secret(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    assert scene.password == Path("/nowhere")
    assert "the credentials of this environment are used" in caplog.text

    scene.secrets = {"kube-system": {"password": "first"}}
    scene.later()

    assert scene.actuator.exists(WANTED) is None


def test_files_are_for_their_owner_alone(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}

    path = scene.password

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_secret_that_stays_is_read_now_and_then_and_changes_nothing(scene: Scene) -> None:
    scene.secrets = {"openshift-machine-api": {"password": "first"}}
    first = scene.keyring.current()
    for _ in range(5):
        assert scene.keyring.current() is first
    assert len(scene.reads) == 1

    scene.later()

    assert scene.keyring.current() is first
    assert len(scene.reads) == 2


def test_a_secret_that_changes_makes_a_new_actuator_and_the_old_file_goes(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    first, file = scene.keyring.current(), scene.password
    scene.secrets = {"kube-system": {"password": "second"}}

    scene.later()

    assert scene.keyring.current() is not first
    assert scene.password.read_text() == "second"
    assert not file.exists()


def test_a_refusal_makes_the_next_look_come_soon(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    assert scene.actuator.exists(WANTED) is None
    (scene.folder / "password").write_text("second")
    scene.secrets = {"kube-system": {"password": "second"}}

    with pytest.raises(platform_errors.Unauthorized):
        scene.actuator.exists(WANTED)
    scene.clock.advance(2)

    assert scene.actuator.exists(WANTED) is None


@pytest.mark.parametrize("trouble", ["the API is away", "the Secret is gone", "the Secret is no good"])
def test_what_was_known_stays_in_use(scene: Scene, trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    first = scene.keyring.current()
    if trouble == "the API is away":
        scene.away = errors.Unavailable("nobody answers")
    else:
        scene.secrets = {} if trouble == "the Secret is gone" else {"kube-system": {"password": ""}}

    for _ in range(3):
        scene.later()
        assert scene.keyring.current() is first

    assert caplog.text.count("stay as they were") == 1
    assert scene.actuator.exists(WANTED) is None


def test_a_secret_that_is_no_good_from_the_start_is_told(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": ""}}

    with pytest.raises(top.ConfigError, match="no password"):
        scene.keyring.current()

    scene.secrets = {"kube-system": {"password": "first"}}
    assert scene.actuator.exists(WANTED) is None


def test_nothing_is_left_behind(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    folder = scene.password.parent.parent

    scene.keyring.close()

    assert not folder.exists()


def test_platforms_are_told_that_it_is_not_the_installer_who_calls(scene: Scene) -> None:
    assert scene.keyring._surroundings(None, scene.folder).caller == "machine-api"


def test_a_password_does_not_reach_the_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    around = scene.keyring._surroundings({"password": "hunter-2"}, scene.folder)

    around.trace("GET /login?password=hunter-2")

    assert "hunter-2" not in caplog.text
    assert "GET /login" in caplog.text


@pytest.mark.parametrize("key", ["password", "api_key", "token", "kubeconfig"])
def test_credentials_do_not_reach_events_or_status_by_the_platforms_own_words(
    scene: Scene, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some echo what they were sent; what they say is shown to everybody who may look at Machines."""
    scene.secrets = {"kube-system": {"password": "first", "url": "https://quay.example.com", key: "hunter-2"}}
    scene.folder.joinpath("password").write_text("hunter-2" if key == "password" else "first")

    def echo(*_: object) -> None:
        raise platform_errors.Terminal("refused: hunter-2 at https://quay.example.com", words="body: hunter-2")

    monkeypatch.setattr(quay.Actuator, "exists", echo)

    with pytest.raises(platform_errors.Terminal) as failure:
        scene.actuator.exists(WANTED)

    assert "hunter-2" not in failure.value.told() + str(failure.value) + failure.value.words
    assert failure.value.told() == "refused: (secret) at https://quay.example.com: body: (secret)"


def test_credentials_of_before_are_not_shown_either(scene: Scene) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    scene.keyring.current()
    scene.secrets = {"kube-system": {"password": "second"}}
    scene.later()
    scene.keyring.current()
    late = platform_errors.Ambiguous("no answer for first, nor for second")

    scene.keyring.blot(late)

    assert late.message == "no answer for (secret), nor for (secret)"


@pytest.mark.parametrize("trouble", ["no password", "no right to read it"])
def test_without_credentials_it_is_the_platform_that_cannot_be_asked(scene: Scene, trouble: str) -> None:
    """Each machine then says so in its status, for those who have no access to the log."""
    scene.secrets = {"kube-system": {"user": "me"}}
    if trouble == "no right to read it":
        scene.away = errors.Forbidden("secrets is forbidden", code=403)

    with pytest.raises(
        platform_errors.Unauthorized, match=r"credentials cannot be used: (the Secret has no|secrets is)"
    ):
        scene.actuator.exists(WANTED)

    scene.secrets, scene.away = {"kube-system": {"password": "first"}}, None
    assert scene.actuator.exists(WANTED) is None


def test_an_api_that_is_away_is_no_trouble_of_the_platforms(scene: Scene) -> None:
    scene.away = errors.Unavailable("nobody answers")

    with pytest.raises(errors.Unavailable):
        scene.actuator.exists(WANTED)


def test_an_actuator_with_places_tells_them_through_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.secrets = {"kube-system": {"password": "first"}}
    assert scene.actuator.place(WANTED) == contract.Place()
    monkeypatch.setattr(quay.Actuator, "place", lambda self, wanted: contract.Place("north", "pier"), raising=False)

    assert scene.actuator.place(WANTED) == contract.Place("north", "pier")


# --- oVirt's ------------------------------------------------------------------------------------------------------

ENGINE = {
    "ovirt_url": "https://engine.example.com/ovirt-engine/api",
    "ovirt_username": "admin@internal",
    "ovirt_password": "0123 #secret: yes",
    "ovirt_insecure": "false",
    "ovirt_cafile": "",
    "ovirt_ca_bundle": "",
}


def test_ovirts_secret_becomes_the_file_that_ovirt_reads(tmp_path: Path) -> None:
    environ = cluster_credentials.environ(ENGINE, tmp_path)

    found = ovirt.read(environ)
    assert (found.url, found.username) == (ENGINE["ovirt_url"], ENGINE["ovirt_username"])
    assert found.password.reveal() == ENGINE["ovirt_password"]
    assert not found.insecure
    assert stat.S_IMODE(Path(environ["OVIRT_CONFIG"]).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ovirt_password": ""}, "ovirt_password is missing"),
        ({"ovirt_url": " "}, "ovirt_url is missing"),
        ({"ovirt_url": "http://engine.example.com"}, "not an https"),
        ({"ovirt_ca_bundle": "nonsense"}, "no certificates"),
    ],
)
def test_an_ovirt_secret_that_is_no_good_is_told_without_its_values(
    change: dict[str, str], why: str, tmp_path: Path
) -> None:
    with pytest.raises(top.ConfigError, match=why) as told:
        cluster_credentials.environ({**ENGINE, **change}, tmp_path)

    assert ENGINE["ovirt_password"] not in str(told.value)


def test_insecure_is_a_word_in_the_secret(tmp_path: Path) -> None:
    assert ovirt.read(cluster_credentials.environ({**ENGINE, "ovirt_insecure": "true"}, tmp_path)).insecure


def ovirt_spec() -> dict[str, Any]:
    return {
        "userDataSecret": {"name": "worker-user-data"},
        "cluster_id": "c0ffee00-0000-4000-8000-000000000001",
        "template_name": "harbour-x7k2p-rhcos",
        "cpu": {"sockets": 1, "cores": 4, "threads": 1},
        "memory_mb": 16384,
    }


def absent(*_: str) -> dict[str, Any]:
    raise errors.NotFound("there is none", code=404)


def test_a_machine_without_a_secret_says_which_one_is_wanted_and_where(tmp_path: Path) -> None:
    """Although oVirt reads its credentials at the first call only; the remedy of a laptop is of no use in a pod."""
    world = machine_world.World()
    keyring = credentials.Keyring("ovirt", absent, world.clock, environ={"HOME": str(tmp_path)})
    world.yard = credentials.Rotating(keyring)  # type: ignore[assignment]
    controller = world.restarted()
    world.put(machine_world.machine_object(providerSpec={"value": ovirt_spec()}))

    for _ in range(2):
        with pytest.raises(platform_errors.Unauthorized) as failure:
            controller.reconcile(machine_world.KEY)
    keyring.close()

    wanted = "there is no Secret ovirt-credentials in openshift-machine-api or kube-system"
    assert wanted in world.condition("InstanceExists")["message"]
    assert wanted in overview.why(world.machine, {}, {}, world.clock.wall() + datetime.timedelta(hours=1))
    assert "OVIRT_CONFIG" not in failure.value.remedy
    assert "make that Secret in openshift-machine-api" in failure.value.remedy


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ovirt_url": "http://engine.example.com"}, "ovirt_url is not an https:// address"),
        ({"ovirt_url": "https://[::1"}, "ovirt_url is not a URL"),
        ({"ovirt_url": "https://engine.example.com:port"}, "ovirt_url is not a URL"),
        ({"ovirt_ca_bundle": "nonsense"}, "ovirt_ca_bundle holds no certificates in PEM form"),
    ],
)
def test_what_is_wrong_in_a_secret_is_told_by_its_name_and_alike_each_time(change: dict[str, str], why: str) -> None:
    """The file made of it is another one each time, and a Machine's status would be written each time."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in {**ENGINE, **change}.items()}
    keyring = credentials.Keyring("ovirt", lambda *_: {"data": data}, clocks.ManualClock(), environ={})
    told = []
    for _ in range(2):
        with pytest.raises(platform_errors.Unauthorized) as failure:
            credentials.Rotating(keyring).exists(WANTED)
        told.append(failure.value.told())
    keyring.close()

    assert told == [f"the platform's credentials cannot be used: Secret ovirt-credentials: {why}"] * 2
