"""The lab's cluster in a thread of its own, made from the same kind of certificates as a real one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from moorage.engine import clock as clocks
from moorage.lab.kube import authentication, certificates, users
from moorage.lab.kube import cluster as kubes
from moorage.lab.kube import server as servers
from tests.kube import cluster, pki, real

START = 30.0


class Embedded:
    """A Kube and its server; ``started`` is set when it serves, ``failure`` is why it does not."""

    def __init__(self, host: str, authority: pki.Authority, clock: clocks.Clock) -> None:
        self.port = 0
        self.started = threading.Event()
        self.failure: BaseException | None = None
        self._host = host
        self._authority = authority
        self._clock = clock
        self._kube: kubes.Kube | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self) -> None:
        """For a thread: serve until told to stop."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.started.set()

    def compact(self) -> None:
        """Forget the history, on the thread that the store belongs to."""
        done = threading.Event()

        def forget() -> None:
            assert self._kube is not None
            self._kube.store.restore(self._kube.store.revision)
            done.set()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(forget)
        assert done.wait(START), "the lab's loop does not answer"

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        pair = self._authority.pair
        self._kube = kube = kubes.Kube(self._clock, service_network="10.0.0.0/24", root_ca=pair.certificate)
        signer = asyncio.create_task(certificates.Signer(kube.api, pair.certificate, pair.key).run())
        async with servers.Server(kube.api, self._access(), [self._certificate()], self._host, 0) as server:
            await kube.start_controllers()
            self.port = server.port
            self.started.set()
            await self._stop.wait()
            signer.cancel()
            await kube.stop()

    def _access(self) -> authentication.Access:
        key = pki.service_account_key()
        return authentication.Access(
            client_ca=self._authority.pair.certificate,
            tokens={token: users.User(user, groups) for token, (user, groups) in cluster.TOKENS.items()},
            service_account_public_keys=[pki.public_pem(key)],
            service_account_key=pki.key_pem(key),
        )

    def _certificate(self) -> servers.Certificate:
        pair = self._authority.server(self._host)
        return servers.Certificate(pair.certificate, pair.key)


@contextlib.contextmanager
def running(work: Path, clock: clocks.Clock | None = None) -> Iterator[cluster.Cluster]:
    """The cluster, until the end of the block."""
    host = real.address()
    authority = pki.Authority()
    embedded = Embedded(host, authority, clock or clocks.Clock())
    thread = threading.Thread(target=embedded.run, name="lab kube", daemon=True)
    thread.start()
    try:
        assert embedded.started.wait(START), "the lab's API did not start"
        assert embedded.failure is None, f"the lab's API did not start: {embedded.failure!r}"
        kubectl = real.program("kubectl")
        assert kubectl, "kubectl is not to be had"
        url = f"https://{host}:{embedded.port}"
        yield cluster.Cluster("lab", work, url, authority, kubectl, embedded.compact)
    finally:
        embedded.stop()
        thread.join(START)
