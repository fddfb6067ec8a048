"""The platform that brings nothing."""

from moorage.assets import platform, values
from moorage.platforms.none import manifests as none


def test_the_user_brings_everything(configure, release):
    config = configure()
    context = platform.Context(config, values.ClusterID("berth-x7k2p", "uuid"), release)
    hook = none.MANIFESTS

    assert hook.name == "none"
    assert hook.infrastructure(context) == platform.Infrastructure("None", {}, {})
    assert (hook.api_vips(config), hook.ingress_vips(config)) == ((), ())
    assert hook.credentials(context) is None
    assert hook.control_plane_machine_set(context) is None
    assert not any(
        part(context)
        for part in (
            hook.cloud_config,
            hook.masters,
            hook.workers,
            hook.extra,
            hook.bootstrap_files,
            hook.bootstrap_units,
            hook.metadata,
        )
    )
