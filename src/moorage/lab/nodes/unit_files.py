"""Whether a systemd unit can be read at all, by the parser that Ignition puts in front of systemd.

It asks only for sections and for options with an equals sign; what an option means is systemd's business.
"""

from __future__ import annotations

_LONGEST_LINE = 2048


def problem(text: str) -> str:
    """What is wrong with a unit's text, empty if it can be read."""
    lines = _logical_lines(text)
    in_section = False
    for line in lines:
        if any(len(part.encode()) >= _LONGEST_LINE for part in line.split("\n")):
            return f"line too long (max {_LONGEST_LINE} bytes)"
        said = line.strip()
        if not said or said[0] in "#;":
            continue
        if not in_section:
            # Whatever stands before the first section is passed over, letter by letter.
            start = line.find("[")
            if start < 0:
                continue
            said = line[start:].strip()
        if said.startswith("["):
            _, end, rest = said.partition("]")
            if not end:
                return "unable to find end of section"
            if rest.strip():
                return f"found garbage after section name: {rest.strip()!r}"
            in_section = True
        elif "=" not in line.split("\n")[0]:
            return "unexpected newline encountered while parsing option name"
    return ""


def _logical_lines(text: str) -> list[str]:
    """Lines, each with those that a backslash at its end continues it with."""
    found: list[str] = []
    going_on = False
    for line in text.split("\n"):
        if going_on:
            found[-1] += "\n" + line
        else:
            found.append(line)
        going_on = line.rstrip(" ").endswith("\\") if _is_comment(found[-1]) else line.endswith("\\")
    return found


def _is_comment(line: str) -> bool:
    return line.lstrip()[:1] in ("#", ";")
