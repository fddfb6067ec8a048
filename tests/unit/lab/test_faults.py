"""Faults on order and the record of calls, on a real server: what the client sees, what was applied, what is noted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab import calls, faults

# What a client sees when the connection ends without a reply.
NOTHING = 0


class Api:
    """A small API with both middlewares, which counts what it really applied."""

    def __init__(self, clock: clocks.Clock, *, keep: int = calls.KEPT) -> None:
        self.log = calls.CallLog(clock, keep)
        self.faults = faults.Faults(clock)
        self.applied: list[str] = []
        self.stale: list[bool] = []
        self.base = ""
        self.app = web.Application(middlewares=[calls.recording(self.log, "toy"), faults.striking(self.faults, "toy")])
        self.app.router.add_post("/vms", self.create)
        self.app.router.add_get("/vms/{name}", self.show)
        self.app.router.add_get("/broken", self.break_down)
        self.app.router.add_get("/stream", self.stream)

    async def create(self, request: web.Request) -> web.Response:
        name = (await request.json())["name"]
        request[calls.WHO] = "admin"
        if name in self.applied:
            self.applied.append(f"{name} again")
            raise web.HTTPConflict(text="it exists")
        self.applied.append(name)
        return web.json_response({"name": name}, status=201)

    async def show(self, request: web.Request) -> web.Response:
        self.stale.append(bool(request.get(faults.STALE)))
        return web.json_response({"name": request.match_info["name"]})

    async def break_down(self, request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self.applied.append("stream")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"all of it")
        await response.write_eof()
        return response

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str, dict[str, str]]:
        """One call on a connection of its own, so that no pool repeats it behind our back."""
        alone, headers = aiohttp.TCPConnector(force_close=True), {"User-Agent": "harbour/1"}
        async with aiohttp.ClientSession(connector=alone, headers=headers) as session:
            try:
                async with session.request(method, self.base + path, json=body) as reply:
                    return reply.status, await reply.text(), dict(reply.headers)
            except aiohttp.ServerDisconnectedError:
                return NOTHING, "", {}
            except aiohttp.ClientOSError:
                return NOTHING, "", {}

    async def create_vm(self, name: str = "vm") -> int:
        return (await self.ask("POST", "/vms", {"name": name}))[0]


def told(story: Callable[[Api], Awaitable[None]], speed: float = 1000.0, keep: int = calls.KEPT) -> Api:
    """Tell a story to a running API, and hand it back for the end of the story."""

    async def run() -> Api:
        api = Api(clocks.Clock(speed), keep=keep)
        runner = web.AppRunner(api.app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            api.base = f"http://{host}:{port}"
            await story(api)
        finally:
            await runner.cleanup()
        return api

    return asyncio.run(run())


def seen_with(rule: dict[str, object], count: int = 3) -> tuple[list[int], Api]:
    """The statuses that so many creations of different machines get under one rule."""
    statuses: list[int] = []

    async def story(api: Api) -> None:
        api.faults.add(faults.from_json(rule))
        for number in range(count):
            statuses.append(await api.create_vm(f"vm{number}"))

    return statuses, told(story)


@pytest.mark.parametrize(
    ("rule", "statuses"),
    [
        ({}, [503, 503, 503]),
        ({"method": "POST", "path": "/vms"}, [503, 503, 503]),
        ({"method": "GET"}, [201, 201, 201]),
        ({"path": "/vm"}, [201, 201, 201]),
        ({"path": "/*"}, [503, 503, 503]),
        ({"nth": 2}, [201, 503, 201]),
        ({"nth": 2, "remaining": None}, [201, 503, 503]),
        ({"nth": 1, "remaining": 2}, [503, 503, 201]),
        ({"remaining": 1}, [503, 201, 201]),
        ({"remaining": 0}, [201, 201, 201]),
    ],
    ids=json.dumps,
)
def test_a_rule_strikes_the_calls_it_was_made_for(rule: dict[str, object], statuses: list[int]) -> None:
    seen, api = seen_with({"action": "fail", "status": 503} | rule)

    assert seen == statuses
    assert api.applied == [f"vm{number}" for number, status in enumerate(statuses) if status == 201]


@pytest.mark.parametrize(
    ("body", "text", "kind"),
    [("go away", "go away", "text/plain; charset=utf-8"), ({"code": 7}, '{"code": 7}', "application/json")],
)
def test_a_failure_is_told_in_the_words_that_were_ordered(body: object, text: str, kind: str) -> None:
    replies: list[tuple[int, str, dict[str, str]]] = []

    async def story(api: Api) -> None:
        rule = {"action": "fail", "status": 429, "body": body, "headers": {"Retry-After": "7"}}
        api.faults.add(faults.from_json(rule))
        replies.append(await api.ask("POST", "/vms", {"name": "vm"}))

    told(story)

    [(status, said, headers)] = replies
    assert (status, said, headers["Retry-After"], headers["Content-Type"]) == (429, text, "7", kind)


@pytest.mark.parametrize(
    ("action", "status", "applied"),
    [
        ("drop", NOTHING, []),
        ("apply-then-drop", NOTHING, ["vm"]),
        ("duplicate", 409, ["vm", "vm again"]),
        ("stale-read", 201, ["vm"]),
        ("delay", 201, ["vm"]),
    ],
)
def test_what_the_client_sees_and_what_was_applied(
    action: str, status: int, applied: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": action, "nth": 1}))
        seen.append(await api.create_vm())

    with caplog.at_level(logging.WARNING):
        api = told(story)

    assert (seen, api.applied) == ([status], applied)
    [call] = api.log.calls()
    assert (call.status, call.faults) == (status or None, (action,))
    assert caplog.records == []


def test_a_refusal_that_is_applied_then_dropped_is_not_told_either() -> None:
    seen: list[int] = []

    async def story(api: Api) -> None:
        await api.create_vm()
        api.faults.add(faults.from_json({"action": "apply-then-drop"}))
        seen.append(await api.create_vm())

    assert told(story).applied == ["vm", "vm again"]
    assert seen == [NOTHING]


def test_a_stream_that_reached_the_client_is_not_run_twice() -> None:
    seen: list[tuple[int, str]] = []

    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": "duplicate"}))
        seen.append((await api.ask("GET", "/stream"))[:2])

    assert told(story).applied == ["stream"]
    assert seen == [(200, "all of it")]


def test_a_delay_lasts_cloud_seconds() -> None:
    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": "delay", "seconds": 60, "nth": 1}))
        await api.create_vm("slow")
        api.faults.clear()
        await api.create_vm("quick")

    slow, _quick = told(story, speed=600.0).log.calls()

    assert slow.seconds >= 60


def test_a_stale_read_is_marked_for_the_handler() -> None:
    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": "stale-read", "path": "/vms/*", "nth": 2}))
        for _ in range(3):
            await api.ask("GET", "/vms/a")

    assert told(story).stale == [False, True, False]


def test_of_two_fates_the_older_rule_decides_and_the_younger_waits() -> None:
    seen: list[int] = []

    async def story(api: Api) -> None:
        for status in (501, 502):
            api.faults.add(faults.from_json({"action": "fail", "status": status, "remaining": 1}))
        for number in range(3):
            seen.append(await api.create_vm(f"vm{number}"))

    told(story)

    assert seen == [501, 502, 201]


def test_a_removed_rule_strikes_no_more() -> None:
    seen: list[object] = []

    async def story(api: Api) -> None:
        number = api.faults.add(faults.from_json({"action": "fail"}))
        seen.append(await api.create_vm())
        seen.append(api.faults.remove(number))
        seen.append(api.faults.remove(number))
        seen.append(await api.create_vm())

    told(story)

    assert seen == [500, True, False, 201]


def test_the_rules_in_force_show_what_they_did() -> None:
    _, api = seen_with({"action": "drop", "method": "POST", "path": "/vms", "nth": 2, "remaining": 5})

    assert api.faults.to_json() == [
        {
            "number": 1,
            "action": "drop",
            "service": "*",
            "method": "POST",
            "path": "/vms",
            "nth": 2,
            "remaining": 3,
            "matched": 3,
            "struck": 2,
        }
    ]


@pytest.mark.parametrize(
    ("pattern", "path", "struck"),
    [
        ("/vms/*", "/vms/a", True),
        ("/vms/*", "/vms/a?x=1", True),
        ("/vms/*", "/vms", False),
        ("/*", "/vms/a", False),
        ("/**", "/vms/a", True),
        ("**/a", "/vms/a", True),
        ("/vms/a?watch=*", "/vms/a?watch=true", True),
        ("/vms/a?watch=*", "/vms/a", False),
        ("/vms/.", "/vms/a", False),
    ],
)
def test_patterns(pattern: str, path: str, struck: bool) -> None:
    seen: list[int] = []

    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": "fail", "path": pattern}))
        seen.append((await api.ask("GET", path))[0])

    told(story)

    assert (seen == [500]) is struck


def test_every_call_is_recorded_with_who_what_and_result() -> None:
    async def story(api: Api) -> None:
        await api.create_vm()
        await api.create_vm()
        await api.ask("GET", "/vms/a?watch=true")
        await api.ask("GET", "/nowhere")
        await api.ask("GET", "/broken")

    api = told(story)

    assert [(call.number, call.who, call.method, call.path, call.status) for call in api.log.calls()] == [
        (1, "admin", "POST", "/vms", 201),
        (2, "admin", "POST", "/vms", 409),
        (3, "127.0.0.1", "GET", "/vms/a?watch=true", 200),
        (4, "127.0.0.1", "GET", "/nowhere", 404),
        (5, "127.0.0.1", "GET", "/broken", 500),
    ]
    times = [call.at for call in api.log.calls()]
    assert times == sorted(times)


def test_the_record_is_bounded_and_can_be_searched() -> None:
    async def story(api: Api) -> None:
        for number in range(4):
            await api.ask("GET", f"/vms/{number}")
        await api.create_vm()

    log = told(story, keep=3).log

    assert (log.total, [call.number for call in log.calls()]) == (5, [3, 4, 5])
    assert [call.path for call in log.calls(method="GET", path="/vms/*", after=3)] == ["/vms/3"]
    log.clear()
    assert (log.calls(), log.total) == ([], 5)


def test_a_call_is_written_for_programs() -> None:
    async def story(api: Api) -> None:
        api.faults.add(faults.from_json({"action": "drop"}))
        await api.create_vm()

    [call] = told(story).log.calls()
    document = json.loads(json.dumps(call.to_json()))

    assert document.pop("at").endswith("+00:00")
    assert document.pop("seconds") >= 0
    assert document == {
        "number": 1,
        "service": "toy",
        "who": "127.0.0.1",
        "agent": "harbour/1",
        "method": "POST",
        "path": "/vms",
        "status": None,
        "faults": ["drop"],
    }


@pytest.mark.parametrize(("service", "struck"), [("toy", True), ("t*", True), ("*", True), ("kube/*", False)])
def test_a_rule_may_mean_one_service_alone(service: str, struck: bool) -> None:
    _, api = seen_with({"action": "drop", "service": service})

    assert api.faults.to_json()[0]["struck"] == (3 if struck else 0)
    assert len(api.log.calls(service=service)) == (3 if struck else 0)
