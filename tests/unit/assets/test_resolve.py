"""A whole asset directory over time: second runs, edits, deletions, changed configs, old certificates."""

from __future__ import annotations

import base64
import datetime
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage import errors
from moorage.assets import bootstrap, cluster, keys, resolve, store
from moorage.config import load
from moorage.installer import produce
from moorage.platforms import registry

Make = Callable[..., produce.Produced]
MOMENT = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
BOTH = (*produce.MANIFESTS, *produce.IGNITION_CONFIGS)
SCHEDULER = "manifests/cluster-scheduler-02-config.yml"


def snapshot(root: Path) -> dict[str, bytes]:
    """Everything a user sees; not our own dot files."""
    paths = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".moorage"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def edit(root: Path, old: str, new: str) -> None:
    path = root / "install-config.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def bootstrap_file(root: Path, path: str) -> bytes:
    files = json.loads((root / "bootstrap.ign").read_bytes())["storage"]["files"]
    source = next(file["contents"]["source"] for file in files if file["path"] == path)
    return base64.b64decode(source.partition(",")[2])


def test_a_second_run_changes_nothing_and_says_so(ready_dir: Path, make: Make) -> None:
    make(ready_dir, BOTH, MOMENT)
    before = snapshot(ready_dir)

    again = make(ready_dir, BOTH, MOMENT + datetime.timedelta(hours=3))

    assert snapshot(ready_dir) == before
    assert again.result.written == ()
    assert again.result.notes == ()


def test_an_edited_manifest_reaches_the_bootstrap_node(ready_dir: Path, make: Make) -> None:
    make(ready_dir, produce.MANIFESTS)
    (ready_dir / SCHEDULER).write_text("# mine\n" + (ready_dir / SCHEDULER).read_text())

    made = make(ready_dir)

    assert bootstrap_file(ready_dir, f"/opt/openshift/{SCHEDULER}").startswith(b"# mine\n")
    assert (ready_dir / SCHEDULER).read_text().startswith("# mine\n")
    assert f"{SCHEDULER}: your edit is kept" in made.result.notes


def test_a_manifest_of_the_users_own_reaches_the_bootstrap_node(ready_dir: Path, make: Make) -> None:
    make(ready_dir, produce.MANIFESTS)
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "default"}}
    (ready_dir / "openshift/50-mine.yaml").write_text(yaml.safe_dump(extra))

    make(ready_dir)

    assert yaml.safe_load(bootstrap_file(ready_dir, "/opt/openshift/openshift/50-mine.yaml")) == extra
    assert (ready_dir / "openshift/50-mine.yaml").exists()


def test_a_deleted_manifest_stays_deleted(ready_dir: Path, make: Make) -> None:
    make(ready_dir, produce.MANIFESTS)
    gone = ready_dir / "openshift/99_openshift-cluster-api_worker-user-data-secret.yaml"
    gone.unlink()

    made = make(ready_dir)

    with pytest.raises(StopIteration):
        bootstrap_file(ready_dir, f"/opt/openshift/openshift/{gone.name}")
    assert not gone.exists()
    assert f"openshift/{gone.name}: left out, because you deleted it" in made.result.notes


def test_an_edited_config_makes_its_children_again_with_a_word(ready_dir: Path, make: Make) -> None:
    first = make(ready_dir, BOTH, MOMENT)
    edit(ready_dir, "baseDomain: example.com", "baseDomain: example.org")

    made = make(ready_dir, BOTH, MOMENT)

    assert b"api-int.harbour.example.org" in (ready_dir / "worker.ign").read_bytes()
    assert any("because install-config.yaml changed" in note for note in made.result.notes)
    assert made.result.values["root_ca"] == first.result.values["root_ca"], "a CA does not depend on the domain"
    assert made.result.values["cluster_id"] == first.result.values["cluster_id"]


def test_an_edit_that_is_overtaken_is_kept_aside(ready_dir: Path, make: Make) -> None:
    make(ready_dir, produce.MANIFESTS, MOMENT)
    dns = "manifests/cluster-dns-02-config.yml"
    mine = "# mine\n" + (ready_dir / dns).read_text()
    (ready_dir / dns).write_text(mine)
    edit(ready_dir, "baseDomain: example.com", "baseDomain: example.org")

    made = make(ready_dir, produce.MANIFESTS, MOMENT)

    assert "harbour.example.org" in (ready_dir / dns).read_text()
    assert (ready_dir / "replaced/20260504T030201Z" / dns).read_text() == mine
    assert any(
        note.startswith(f"{dns}: your edit was replaced because install-config.yaml changed")
        for note in made.result.notes
    )


def test_the_install_config_is_never_touched(ready_dir: Path, make: Make) -> None:
    before = (ready_dir / "install-config.yaml").read_bytes()

    make(ready_dir, BOTH)

    assert (ready_dir / "install-config.yaml").read_bytes() == before


def test_a_password_of_the_users_own_is_hashed(ready_dir: Path, make: Make) -> None:
    make(ready_dir)
    (ready_dir / "auth/kubeadmin-password").write_text("correct-horse-battery-staple\n")

    made = make(ready_dir)

    assert bcrypt.checkpw(b"correct-horse-battery-staple", made.result.values["kubeadmin_hash"].encode())


def test_a_ca_of_the_users_own_signs(ready_dir: Path, make: Make, tmp_path: Path) -> None:
    other = make(ready_dir, moment=MOMENT).result.values["admin_kubeconfig_signer"]
    theirs = tmp_path / "theirs"
    (theirs / "tls").mkdir(parents=True)
    (theirs / "install-config.yaml").write_bytes((ready_dir / "install-config.yaml").read_bytes())
    (theirs / "tls/kube-apiserver-lb-signer.crt").write_text(other.cert)
    (theirs / "tls/kube-apiserver-lb-signer.key").write_text(other.key)

    made = make(theirs, moment=MOMENT).result.values

    assert made["kube_apiserver_lb_signer"] == other
    assert made["kube_apiserver_lb_server"].cert.endswith(other.cert)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"crt": "cert"}, "must both be there"),
        ({"crt": "key", "key": "key"}, "not a PEM certificate"),
        ({"crt": "cert", "key": "other key"}, "does not belong to the certificate"),
        ({"crt": "leaf", "key": "leaf key"}, "not a CA certificate"),
        ({"crt": "cert", "key": "nonsense"}, "not an unencrypted PEM private key"),
    ],
)
def test_a_ca_that_cannot_sign_is_refused(ready_dir: Path, make: Make, files: dict[str, str], reason: str) -> None:
    made = make(ready_dir).result.values
    ca, leaf = made["root_ca"], made["machine_config_server"]
    texts = {
        "cert": ca.cert,
        "key": ca.key,
        "other key": leaf.key,
        "leaf": leaf.cert,
        "leaf key": leaf.key,
        "nonsense": "nonsense",
    }
    (ready_dir / "tls").mkdir()
    for suffix, which in files.items():
        (ready_dir / f"tls/root-ca.{suffix}").write_text(texts[which])
    before = snapshot(ready_dir)

    with pytest.raises(errors.MoorageError, match=reason):
        make(ready_dir)

    assert snapshot(ready_dir) == before


@pytest.mark.parametrize(
    ("hours", "fresh"), [(0, False), (11, False), (12, True), (30, True), (24 * 364, True), (24 * 364 * 11, True)]
)
def test_a_stale_directory_gets_fresh_certificates(ready_dir: Path, make: Make, hours: int, fresh: bool) -> None:
    first = make(ready_dir, moment=MOMENT).result.values
    later = MOMENT + datetime.timedelta(hours=hours)

    made = make(ready_dir, moment=later)

    assert (made.result.values["kubelet_signer"] != first["kubelet_signer"]) is fresh
    assert bool([note for note in made.result.notes if "24 h" in note]) is fresh
    assert made.result.values["bootable"]
    assert (made.result.values["root_ca"] != first["root_ca"]) is (hours > 24 * 365 * 9)
    assert made.result.values["cluster_id"] == first["cluster_id"]


def test_an_edited_bootstrap_config_that_expired_is_refused(ready_dir: Path, make: Make) -> None:
    make(ready_dir, moment=MOMENT)
    path = ready_dir / "bootstrap.ign"
    content = json.loads(path.read_bytes())
    content["storage"]["files"].append({"path": "/etc/mine", "mode": 420, "contents": {"source": "data:,x"}})
    path.write_text(json.dumps(content))
    # The user's own file stays in force only while nothing newer is generated: take its base away, as for a
    # directory that was copied without its state.
    (ready_dir / store.STATE).unlink()
    before = snapshot(ready_dir)

    with pytest.raises(errors.MoorageError, match="expired certificates") as problem:
        produce.produce(ready_dir, produce.IGNITION_CONFIGS, keys.KeySource(0), {}, MOMENT + datetime.timedelta(days=2))

    assert "move it away" in problem.value.remedy
    assert snapshot(ready_dir) == before


def test_a_broken_config_changes_nothing(ready_dir: Path, make: Make) -> None:
    make(ready_dir, BOTH)
    edit(ready_dir, "baseDomain: example.com", "baseDomain: -bad-")
    before = snapshot(ready_dir)

    with pytest.raises(errors.ConfigError):
        make(ready_dir, BOTH)

    assert snapshot(ready_dir) == before


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> dict[str, Any]:
    """All values of the whole graph, computed once."""
    root = tmp_path_factory.mktemp("resolved")
    from tests.conftest import INSTALL_CONFIG

    config, _ = load.parse(INSTALL_CONFIG, registry.stanzas())
    inputs = {
        "install_config": config,
        "platform": registry.manifests("none"),
        "release": produce_release(),
        "key_source": keys.KeySource(0),
        "moment": MOMENT,
        "invoker": "user",
        "bootstrap_overrides": bootstrap.NO_OVERRIDES,
    }
    with store.opened(root) as directory:
        directory.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    with store.opened(root) as directory:
        done = resolve.run(produce.whole_graph(), directory, inputs, BOTH, {}, "stamp")
    return dict(done.values)


def produce_release() -> Any:
    from moorage.assets import releases

    return releases.choose("amd64", {})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.floats(0.05, 1))
def test_any_subset_regenerated_equals_itself(resolved: dict[str, Any], chooser: random.Random, share: float) -> None:
    graph = produce.whole_graph()
    computable = [
        name for name in graph.order if name in resolved and graph.assets[name].make and not graph.assets[name].kept
    ]
    forgotten = {name for name in computable if chooser.random() < share}
    again = {name: value for name, value in resolved.items() if name not in forgotten}

    for name in graph.order:
        node = graph.assets[name]
        if name in forgotten:
            assert node.make is not None
            again[name] = node.make(**{need: again[need] for need in node.needs})

    for name in forgotten:
        assert again[name] == resolved[name], name


def test_only_what_cannot_be_computed_is_kept() -> None:
    kept = {name for name, node in produce.whole_graph().assets.items() if node.kept}

    assert kept == {"keyring", "marks", "kubeadmin", "kubeadmin_hashed", "issued_day", "issued_year", "issued_decade"}


def test_the_infra_id_is_cut_to_27_characters(ready_dir: Path, make: Make) -> None:
    edit(ready_dir, "name: harbour", "name: a-very-long-name.with-dots-inside-it")

    infra_id = make(ready_dir).result.values["cluster_id"].infra_id

    assert infra_id.startswith("a-very-long-name-with-")
    assert len(infra_id) == 27


def test_worn_says_what_and_why() -> None:
    issued = cluster.Issued(MOMENT.isoformat(), cluster.DAY)

    assert cluster.worn(issued, MOMENT) is None
    assert "expire at 2026-05-05 03:02" in (cluster.worn(issued, MOMENT + datetime.timedelta(hours=13)) or "")
    assert "have expired" in (cluster.worn(issued, MOMENT + datetime.timedelta(hours=25)) or "")
