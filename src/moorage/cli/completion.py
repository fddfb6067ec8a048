"""`moorage completion SHELL`: completion scripts, written from the parser itself so that they cannot fall behind."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from moorage.cli import talk


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    from moorage.cli import main

    tree = dict(_walk(main.parser(), ()))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](tree), end="")
    return 0


class _Node:
    """What can follow one command: sub-commands with their help, flags with their help and choices."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.verbs: dict[str, str] = {}
        self.flags: dict[str, str] = {}
        self.words: list[str] = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                self.verbs = {choice.dest: choice.help or "" for choice in action._choices_actions}
            elif action.option_strings and action.help != argparse.SUPPRESS:
                self.flags |= dict.fromkeys(action.option_strings, action.help or "")
            elif action.choices:
                self.words += [str(choice) for choice in action.choices]


def _walk(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Node]]:
    yield path, _Node(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _walk(child, (*path, name))


def _bash(tree: dict[tuple[str, ...], _Node]) -> str:
    cases = "\n".join(
        f'    "{" ".join(path)}") words="{" ".join([*node.verbs, *node.words, *node.flags])}" ;;'
        for path, node in tree.items()
    )
    known = " ".join(sorted({word for path in tree for word in path}))
    return f"""# bash completion for moorage: source <(moorage completion bash)
_moorage() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" word words=""
  case "$previous" in
    --dir) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    --output-file|--answers) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
  esac
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {known} " in *" $word "*) path="${{path:+$path }}$word" ;; esac
  done
  case "$path" in
{cases}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F _moorage moorage
"""


def _zsh(tree: dict[tuple[str, ...], _Node]) -> str:
    return f"#compdef moorage\nautoload -U +X bashcompinit && bashcompinit\n{_bash(tree)}"


def _fish(tree: dict[tuple[str, ...], _Node]) -> str:
    lines = ["# fish completion for moorage: moorage completion fish | source", "complete -c moorage -f"]
    for path, node in tree.items():
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in path).removeprefix("; and ")
        unseen = f"not __fish_seen_subcommand_from {' '.join(node.verbs)}" if node.verbs else ""
        condition = "; and ".join(part for part in (seen, unseen) if part) or "true"
        for word, text in [*node.verbs.items(), *((word, "") for word in node.words)]:
            lines.append(f"complete -c moorage -n {_quoted(condition)} -a {word} -d {_quoted(text)}")
        for flag, text in node.flags.items():
            form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"complete -c moorage -n {_quoted(seen or 'true')} {form} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
