"""The asset graph as a picture: mermaid, dot, or JSON for other tools. Only edges that say something are drawn."""

from __future__ import annotations

import json

from moorage.assets import graph


def draw(assets: graph.Graph, form: str) -> str:
    """``form`` is mermaid, dot or json."""
    return {"mermaid": _mermaid, "dot": _dot, "json": _json}[form](assets)


def _edges(assets: graph.Graph) -> list[tuple[str, str]]:
    return [(need, name) for name in sorted(assets.assets) for need in assets.assets[name].needs]


def _mermaid(assets: graph.Graph) -> str:
    lines = ["flowchart LR"]
    for name in sorted(assets.assets):
        node = assets.assets[name]
        if node.make is None:
            lines.append(f"  {name}[/{name}/]")
        elif node.files:
            lines.append(f'  {name}["{name}<br/>{"<br/>".join(node.files)}"]')
        else:
            lines.append(f"  {name}({name})")
    lines += [f"  {parent} --> {child}" for parent, child in _edges(assets)]
    return "\n".join(lines) + "\n"


def _dot(assets: graph.Graph) -> str:
    lines = ["digraph assets {", "  rankdir=LR;", "  node [fontname=sans, fontsize=10];"]
    for name in sorted(assets.assets):
        node = assets.assets[name]
        label = "\\n".join((name, *node.files))
        shape = "parallelogram" if node.make is None else "note" if node.files else "box"
        lines.append(f'  "{name}" [label="{label}", shape={shape}];')
    lines += [f'  "{parent}" -> "{child}";' for parent, child in _edges(assets)]
    return "\n".join([*lines, "}"]) + "\n"


def _json(assets: graph.Graph) -> str:
    nodes = [
        {
            "name": name,
            "needs": list(node.needs),
            "files": list(node.files),
            "input": node.make is None,
            "summary": node.summary,
        }
        for name, node in sorted(assets.assets.items())
    ]
    return json.dumps(nodes, indent=1) + "\n"
