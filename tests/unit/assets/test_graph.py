"""The graph is read from signatures, and wrong signatures are found when it is built."""

from __future__ import annotations

import types

import pytest

from moorage.assets import graph
from moorage.installer import produce


def module_of(*functions: object) -> types.ModuleType:
    module = types.ModuleType("made_up")
    for function in functions:
        function.__module__ = "made_up"  # type: ignore[attr-defined]
        setattr(module, function.__name__, function)  # type: ignore[attr-defined]
    return module


def test_parameters_are_dependencies() -> None:
    @graph.asset()
    def hull(wood: str) -> bytes:
        return wood.encode()

    @graph.asset(files=("boat.txt",))
    def boat(hull: bytes, wood: str) -> bytes:
        return hull

    built = graph.collect([module_of(hull, boat)], {"wood": str})

    assert built.assets["boat"].needs == ("hull", "wood")
    assert built.order.index("wood") < built.order.index("hull") < built.order.index("boat")
    assert built.ancestry(["hull"]) == {"hull", "wood"}


def test_a_parameter_nobody_produces_is_refused() -> None:
    @graph.asset()
    def boat(sail: str) -> bytes:
        return b""

    with pytest.raises(TypeError, match="boat needs sail, which nothing produces"):
        graph.collect([module_of(boat)], {})


def test_a_parameter_of_another_type_is_refused() -> None:
    @graph.asset()
    def boat(wood: bytes) -> bytes:
        return wood

    built = graph.collect([module_of(boat)], {"wood": str})

    with pytest.raises(TypeError, match="boat takes wood as"):
        graph.check_types(built, {"wood": str})


def test_the_products_own_graph_fits_together() -> None:
    graph.check_types(produce.whole_graph(), produce.inputs())


def test_a_circle_is_refused() -> None:
    @graph.asset()
    def hen(egg: str) -> str:
        return egg

    @graph.asset()
    def egg(hen: str) -> str:
        return hen

    with pytest.raises(ValueError, match="cycle"):
        graph.collect([module_of(hen, egg)], {})


def test_two_of_one_name_are_refused() -> None:
    @graph.asset()
    def boat() -> str:
        return ""

    with pytest.raises(TypeError, match="two assets are named boat"):
        graph.collect([module_of(boat)], {"boat": str})
