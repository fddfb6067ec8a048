"""The renderer of a site: the one program of a container that the lab really runs, because the product brings it.

`moorage node-network render --batch` answers a line of JSON with a line of JSON. One such process serves all machines
of a site; it is started for the first that asks, ends when the last that uses it is gone, and is started again if it
dies. The event loop never waits for it, and whoever asked learns what went wrong in the program's own words.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import sys
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from moorage.lab import site as sites

_NAME = "moorage node-network render"
COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "moorage", "node-network", "render", "--batch")

# Real seconds, for it is a real program: how long one answer may take, and how soon after a death it is started again.
_ANSWER_SECONDS = 60.0
_RESTART_SECONDS = 1.0
_END_SECONDS = 5.0
# How much it may say in one line and keep of its complaints; how many questions it is given before it has answered.
_LONGEST_LINE = 16 * 1024 * 1024
_LONGEST_COMPLAINT = 2000
_MOST_AT_ONCE = 16

_renderers: weakref.WeakKeyDictionary[sites.Site, Renderer] = weakref.WeakKeyDictionary()


class Failed(Exception):  # noqa: N818 - said on the console of the node that asked
    """There is no rendering: the program refused the request, or died."""


@contextlib.asynccontextmanager
async def used(site: sites.Site, command: Sequence[str] = ()) -> AsyncIterator[Renderer]:
    """The renderer of a site, for as long as somebody means to ask it."""
    found = _renderers.get(site)
    if found is None:
        found = _renderers[site] = Renderer(command or COMMAND)
    found.users += 1
    try:
        yield found
    finally:
        found.users -= 1
        if not found.users:
            # Whoever comes next gets another: this one is on its way out.
            if _renderers.get(site) is found:
                del _renderers[site]
            await found.stop()


class Renderer:
    """The program as its users know it: they ask, and do not care whether it has died meanwhile."""

    def __init__(self, command: Sequence[str]) -> None:
        self.users = 0
        self._command = command
        self._program: _Program | None = None
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._starting = asyncio.Lock()
        self._not_before = 0.0
        self._ended = False

    @property
    def pid(self) -> int | None:
        """The process that runs, if one does."""
        return None if self._program is None or self._program.over else self._program.process.pid

    async def render(self, request: Mapping[str, Any]) -> dict[str, str]:
        """The files for a machine by their paths; `Failed` in the program's words."""
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        async with self._room:
            program = await self._running()
            answer = await program.asked(line)
        try:
            reply = json.loads(answer)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise Failed(f"{_NAME}: not an object of JSON: {answer[:200]!r}")
        files = reply.get("files")
        if "error" in reply or not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
            raise Failed(f"{_NAME}: {reply.get('error') or 'no files'}")
        return files

    async def stop(self) -> None:
        """End the program: it ends by itself once nobody can ask it any more, or is made to."""
        self._ended = True
        async with self._starting:
            program, self._program = self._program, None
            if program is not None:
                await program.end()

    async def _running(self) -> _Program:
        async with self._starting:
            if self._ended:
                raise Failed(f"{_NAME}: nobody uses it any more")
            if self._program is None or self._program.over:
                now = asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, self._not_before - now))
                self._not_before = asyncio.get_running_loop().time() + _RESTART_SECONDS
                self._program = await _started(self._command)
            return self._program


async def _started(command: Sequence[str]) -> _Program:
    pipe = asyncio.subprocess.PIPE
    try:
        # Out of reach of what is typed where the lab was started: the lab ends it.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LONGEST_LINE, start_new_session=True
        )
    except OSError as problem:
        raise Failed(f"{_NAME} cannot be started: {problem}") from problem
    return _Program(process)


class _Program:
    """One process, and the questions that it has not answered yet, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.over = False
        self._input = cast(asyncio.StreamWriter, process.stdin)
        self._output = cast(asyncio.StreamReader, process.stdout)
        self._errors = cast(asyncio.StreamReader, process.stderr)
        self._asked: collections.deque[asyncio.Future[bytes]] = collections.deque()
        self._complaints = bytearray()
        loop = asyncio.get_running_loop()
        self._hearing = loop.create_task(self._hear_out(), name="complaints of the renderer")
        self._listening = loop.create_task(self._listen(), name="answers of the renderer")

    async def asked(self, line: bytes) -> bytes:
        """The answer to one line."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        self._input.write(line)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with contextlib.suppress(OSError):
                    await self._input.drain()
                return await future
        except TimeoutError:
            # Its later answers would be taken for those to others' questions.
            self._kill()
            raise Failed(f"{_NAME}: no answer within {_ANSWER_SECONDS:g} s") from None

    async def end(self) -> None:
        self._input.close()
        await self._gone()
        await asyncio.gather(self._listening, self._hearing, return_exceptions=True)

    async def _listen(self) -> None:
        """Hand each answer to who waits for it; when there are no more, tell all who still wait."""
        try:
            while line := await self._output.readline():
                if self._asked and not (waiting := self._asked.popleft()).done():
                    waiting.set_result(line)
        except ValueError:
            # Longer than any answer may be.
            self._kill()
        self.over = True
        code = await self._gone()
        await self._hearing
        said = self._complaints.decode("utf-8", "replace").strip().replace("\n", " | ")
        why = f"{_NAME} ended with status {code}{f': {said}' if said else ''}"
        while self._asked:
            if not (waiting := self._asked.popleft()).done():
                waiting.set_exception(Failed(why))

    async def _hear_out(self) -> None:
        while piece := await self._errors.read(_LONGEST_COMPLAINT):
            self._complaints += piece
            del self._complaints[:-_LONGEST_COMPLAINT]

    async def _gone(self) -> int:
        """The status with which it ended; one that has only closed its mouth is not waited for for ever."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self.process.wait()
        except TimeoutError:
            self._kill()
            return await self.process.wait()

    def _kill(self) -> None:
        self.over = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
