"""How many machines make what redundancy."""

import pytest

from moorage import errors
from moorage.assets import topology


@pytest.mark.parametrize(
    ("masters", "workers", "control_plane", "infrastructure"),
    [
        (3, 3, "HighlyAvailable", "HighlyAvailable"),
        (3, 2, "HighlyAvailable", "HighlyAvailable"),
        (3, 1, "HighlyAvailable", "SingleReplica"),
        (3, 0, "HighlyAvailable", "HighlyAvailable"),
        (5, 0, "HighlyAvailable", "HighlyAvailable"),
        (1, 0, "SingleReplica", "SingleReplica"),
        (1, 1, "SingleReplica", "SingleReplica"),
        (1, 2, "SingleReplica", "HighlyAvailable"),
    ],
)
def test_redundancy_follows_the_machines(configure, masters, workers, control_plane, infrastructure):
    config = configure(masters=masters, workers=workers)

    assert topology.of(config) == topology.Topology(control_plane, infrastructure)


def test_two_masters_are_refused(configure):
    with pytest.raises(errors.ConfigError, match="quorum") as refused:
        topology.of(configure(masters=2))

    assert "1 or 3" in refused.value.remedy
