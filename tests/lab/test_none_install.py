"""A cluster on machines that the user brings comes up in the lab, end to end, by the commands the user types."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from moorage.cli import demo_requests
from moorage.installer import produce
from tests.lab import admission, rack

SPEED = 120.0


def test_a_cluster_comes_up(ready_dir: Path, make: Callable[..., produce.Produced], tmp_path: Path) -> None:
    config = ready_dir / "install-config.yaml"
    config.write_text(config.read_text() + "compute:\n- name: worker\n  replicas: 2\n")
    make(ready_dir)
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        scene = rack.Rack(lab, ready_dir, workers=2)
        scene.power_on()

        bootstrapped = scene.moorage("wait-for", "bootstrap-complete")
        assert bootstrapped.returncode == 0, f"{bootstrapped.stderr}\n{scene.consoles()}"

        scene.balance(bootstrap=False)
        scene.plain.delete_machine("bootstrap")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(scene.moorage("lab", "kubeconfig").stdout)
        over = threading.Event()
        names = ["worker-0", "worker-1"]
        letting_in = threading.Thread(target=admission.approve, args=(kubeconfig, names, over))
        letting_in.start()
        try:
            installed = scene.moorage("wait-for", "install-complete", "-o", "json")
        finally:
            over.set()
            letting_in.join()

        assert installed.returncode == 0, f"{installed.stderr}\n{scene.consoles()}"
        assert json.loads(installed.stdout)["consoleURL"] == f"https://console-openshift-console.apps.{rack.DOMAIN}"
        nodes = demo_requests.nodes(kubeconfig).splitlines()[1:]
        assert sorted(line.split()[:2] for line in nodes) == [
            [name, "Ready"] for name in ("master-0", "master-1", "master-2", "worker-0", "worker-1")
        ]
        timeline = scene.moorage("timeline", "-o", "json")
        assert [stage["stage"] for stage in json.loads(timeline.stdout)] == ["wait-for"]
