"""Plays the cases against a real kube-apiserver and keeps what it answers: give its URL and a token that may do all.

All cases go side by side, each step at its own second of the clock, so that the times in managed fields tell the steps
apart. What differs from one recording to the next (uids, versions, dates of creation) is left out.

    python -m tests.unit.lab.kube.record_patch_cases https://127.0.0.1:6443 TOKEN
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from typing import Any

import aiohttp

from tests.unit.lab.kube import patch_cases, replay

_UNSTABLE = ("uid", "resourceVersion", "creationTimestamp", "generation")


class Recorder:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(
        self, method: str, path: str, *, body: Any = None, type: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        text = body if isinstance(body, str) else json.dumps(body)
        headers = {"Content-Type": type, "User-Agent": "recorder/1.0"}
        data = None if body is None else text
        async with self.session.request(
            method, self.url + path, data=data, params=query, headers=headers, ssl=False
        ) as reply:
            return reply.status, await reply.json(content_type=None)

    async def step(self, case: patch_cases.Case, step: patch_cases.Step) -> dict[str, Any]:
        path = patch_cases.PATHS[case.kind][1]
        at = f"{path}/{case.name}" + (f"/{step.subresource}" if step.subresource else "")
        current = (await self.ask("GET", at))[1] if step.verb == "update" else None
        method = {"create": "POST", "update": "PUT", "patch": "PATCH"}[step.verb]
        query = {"fieldManager": step.manager} if step.manager else {}
        if step.force:
            query["force"] = "true"
        code, answer = await self.ask(
            method,
            path if step.verb == "create" else at,
            body=patch_cases.sent(case, step, current),
            type=step.type or "application/json",
            **query,
        )
        if code >= 300:
            return {"code": code, "status": answer}
        _, found = await self.ask("GET", f"{path}/{case.name}")
        for key in _UNSTABLE:
            found["metadata"].pop(key, None)
        return {"code": code, "object": found}

    async def case(self, case: patch_cases.Case, start: float) -> list[Any]:
        path = f"{patch_cases.PATHS[case.kind][1]}/{case.name}"
        await self.ask("PATCH", path, body={"metadata": {"finalizers": None}}, type=patch_cases.MERGE)
        await self.ask("DELETE", path)
        found = []
        for number, step in enumerate(case.steps):
            await asyncio.sleep(max(0, start + number - time.time()))
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = await self.step(case, step)
            entries = answer.get("object", {}).get("metadata", {}).get("managedFields", ())
            # A busy server may come to it a second later.
            now = max([now, *(entry["time"] for entry in entries if "time" in entry)])
            found.append({"time": now, **answer})
        return found


async def main(url: str, token: str) -> None:
    cases = replay.all_cases()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        recorder = Recorder(session, url)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await recorder.ask("POST", definitions, body=patch_cases.WIDGETS)
        await asyncio.sleep(3)
        start = int(time.time()) + 4.1
        found = await asyncio.gather(*(recorder.case(case, start) for case in cases))
    lines = [
        json.dumps(case.name) + ": " + json.dumps(steps, separators=(",", ":"))
        for case, steps in zip(cases, found, strict=True)
    ]
    replay.KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
