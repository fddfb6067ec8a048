"""A cluster without a balancer for its API: the user brings keepalived as static pods and a virtual address."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from moorage.installer import produce
from moorage.lab import client
from tests.lab import rack

SPEED = 150.0
API = 6443

KEEPALIVED = """\
global_defs {{
    enable_script_security
    script_user root
}}

vrrp_script chk_api {{
    script "/usr/bin/timeout 1.9 /etc/keepalived/chk_api.sh"
    interval 2
    weight 28
    rise 3
    fall 3
}}

vrrp_instance harbour_API {{
    state BACKUP
    interface ens3
    virtual_router_id 51
    priority {priority}
    advert_int 1
    authentication {{
        auth_type PASS
        auth_pass harbour
    }}
    virtual_ipaddress {{
        {address}/20 label vip
    }}
    {track}
}}
"""
TRACK = """track_script {
        chk_api
    }"""
CHECK = "#!/bin/bash\n/usr/bin/curl -o /dev/null -kLfs https://localhost:6443/readyz\n"


def pod(*, monitor: bool) -> str:
    """keepalived as a static pod, with the monitor that the bootstrap machine has."""
    mount = {"name": "conf-dir", "mountPath": "/etc/keepalived"}
    line = "/usr/sbin/keepalived -f /etc/keepalived/keepalived.conf --dont-fork --vrrp --log-console"
    keepalived = {"name": "keepalived", "image": "registry.example.com/keepalived:2", "volumeMounts": [mount]}
    keepalived["command"] = ["/bin/bash", "-c", line]
    containers = [keepalived]
    if monitor:
        watching = {"name": "keepalived-monitor", "image": "registry.example.com/runtimecfg:4", "volumeMounts": [mount]}
        containers.append({**watching, "command": ["dynkeepalived", "--check-interval", "5s"]})
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "keepalived", "namespace": "kube-system"},
            "spec": {
                "hostNetwork": True,
                "volumes": [{"name": "conf-dir", "hostPath": {"path": "/etc/keepalived"}}],
                "containers": containers,
            },
        }
    )


def files(address: str, *, bootstrap: bool) -> list[dict[str, object]]:
    """What a machine needs, as Ignition has it."""
    config = KEEPALIVED.format(address=address, priority=70 if bootstrap else 40, track="" if bootstrap else TRACK)
    contents = {
        "/etc/keepalived/keepalived.conf": (config, 0o644),
        "/etc/keepalived/chk_api.sh": (CHECK, 0o755),
        "/etc/kubernetes/manifests/keepalived.yaml": (pod(monitor=bootstrap), 0o644),
    }
    return [
        {
            "path": path,
            "mode": mode,
            "overwrite": True,
            "contents": {"source": f"data:;base64,{base64.b64encode(text.encode()).decode()}"},
        }
        for path, (text, mode) in contents.items()
    ]


def bring_keepalived(directory: Path, address: str, make: Callable[..., produce.Produced]) -> None:
    """A MachineConfig among the manifests for the masters, and an edit of bootstrap.ign for the bootstrap machine."""
    install_config = directory / "install-config.yaml"
    install_config.write_text(install_config.read_text() + "compute:\n- name: worker\n  replicas: 0\n")
    make(directory, produce.MANIFESTS)
    config = {"ignition": {"version": "3.2.0"}, "storage": {"files": files(address, bootstrap=False)}}
    machine_config = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": "99-master-keepalived",
            "labels": {"machineconfiguration.openshift.io/role": "master"},
        },
        "spec": {"config": config},
    }
    (directory / "openshift" / "99_master-keepalived.yaml").write_text(yaml.safe_dump(machine_config))
    make(directory)
    path = directory / "bootstrap.ign"
    bootstrap = json.loads(path.read_bytes())
    bootstrap["storage"]["files"] += files(address, bootstrap=True)
    path.write_text(json.dumps(bootstrap))


def ready(address: str) -> bool:
    """Whether the API answers behind an address."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, API, timeout=2, context=anybody)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def holders(scene: rack.Rack, names: Iterable[str]) -> list[str]:
    """The machines whose last word about the virtual address was that they have it."""
    found = []
    for name in names:
        said = [line for line in scene.plain.console(name).splitlines() if "Entering" in line and "STATE" in line]
        if said and "Entering MASTER STATE" in said[-1]:
            found.append(name)
    return found


def until(look: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if look():
            return True
        time.sleep(0.05)
    return False


def kill(lab: client.Lab, name: str) -> None:
    lab.control("POST", f"/lab/machines/{name}/kill")


def test_a_cluster_comes_up_behind_a_virtual_address(
    ready_dir: Path, make: Callable[..., produce.Produced], tmp_path: Path
) -> None:
    masters = ["master-0", "master-1", "master-2"]
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        address = str(ipaddress.ip_network(lab.network)[100])
        bring_keepalived(ready_dir, address, make)
        scene = rack.Rack(lab, ready_dir, listeners=(443, 80), names=("*.apps",))
        scene.plain.zone("example.com")
        for name in ("api", "api-int"):
            scene.plain.record(f"{name}.{rack.DOMAIN}", address)
        scene.power_on()

        bootstrapped = scene.moorage("wait-for", "bootstrap-complete")
        assert bootstrapped.returncode == 0, f"{bootstrapped.stderr}\n{scene.consoles()}"
        assert "keepalived-monitor: the API here failed 5 checks" in scene.plain.console("bootstrap")
        scene.plain.delete_machine("bootstrap")
        del scene.addresses["bootstrap"]
        installed = scene.moorage("wait-for", "install-complete")
        assert installed.returncode == 0, f"{installed.stderr}\n{scene.consoles()}"

        (first,) = holders(scene, masters)
        kill(lab, first)
        assert until(lambda: ready(address)), scene.consoles()
        (second,) = holders(scene, set(masters) - {first})
        assert second != first
