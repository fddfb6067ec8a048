"""Words for messages: lists as people write them, and the name somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def one_of(names: Iterable[str]) -> str:
    """``a, b or c``."""
    *head, last = names
    return f"{', '.join(head)} or {last}" if head else last


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``word``: the same but for case, else the most similar one if it is similar at all."""
    by_folded = {name.casefold(): name for name in known}
    if word.casefold() in by_folded:
        return by_folded[word.casefold()]
    close = difflib.get_close_matches(word.casefold()[:100], by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def suggestion(word: str, known: Iterable[str], *, quote: str = "`") -> str:
    """``did you mean `x`?``, or nothing."""
    match = nearest(word, known)
    return f"did you mean {quote}{match}{quote}?" if match is not None and match != word else ""
