"""Who makes a request, and as whom: proved by certificate or token, and perhaps speaking for somebody else.

Whoever may impersonate others says so in headers; from then on the request is theirs, and judged by what they may do.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.kube import authentication, authorization, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def caller(api: apis.Api, access: authentication.Access, request: web.Request) -> users.User:
    """The user that a request is made by, or made for."""
    transport = request.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    user = authentication.authenticate(access, api, certificate, request.headers.get("Authorization", ""))
    if any(header.lower().startswith("impersonate-") for header in request.headers):
        return _impersonated(api, user, request)
    return user


def _impersonated(api: apis.Api, user: users.User, request: web.Request) -> users.User:
    name = request.headers.get("Impersonate-User", "")
    groups = tuple(request.headers.getall("Impersonate-Group", []))
    uid = request.headers.get("Impersonate-Uid", "")
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in request.headers.items():
        if header.lower().startswith(_EXTRA):
            key = urllib.parse.unquote(header[len(_EXTRA) :].lower())
            extra[key] = (*extra.get(key, ()), value)
    if not name:
        raise _nobody(request, groups, uid, extra)
    for asked in _needed(name, groups, uid, extra):
        authorization.require(api, user, asked)
    account = users.service_account_of(name)
    if account is not None and not groups:
        return users.service_account(*account, uid=uid, extra=extra)
    if name == users.ANONYMOUS:
        unproved = groups if users.UNAUTHENTICATED in groups else (*groups, users.UNAUTHENTICATED)
        return users.User(name, unproved, uid, extra)
    return users.authenticated(name, groups, uid, extra)


def _nobody(
    request: web.Request, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]
) -> web.HTTPInternalServerError:
    """The answer to who wants somebody's groups and does not say whose: a text, as a real server's failures are."""
    version = f"{_AUTHENTICATION}/v1"
    wanted = [f"{{Group  {group}    }}" for group in groups]
    wanted += [f"{{UserExtra  {value}  {version}  {key}}}" for key, values in extra.items() for value in values]
    wanted += [f"{{UID  {uid}  {version}  }}"] if uid else []
    told = f"requested [{' '.join(wanted)}] without impersonating a user"
    return web.HTTPInternalServerError(text=f'Internal Server Error: "{request.path_qs}": {told}\n')


def _needed(
    name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]
) -> Iterator[authorization.Attributes]:
    account = users.service_account_of(name)
    if account is not None:
        namespace, own = account
        yield authorization.Attributes("impersonate", "", "serviceaccounts", "", namespace, own)
    else:
        yield authorization.Attributes("impersonate", "", "users", name=name)
    for group in groups:
        yield authorization.Attributes("impersonate", "", "groups", name=group)
    if uid:
        yield authorization.Attributes("impersonate", _AUTHENTICATION, "uids", name=uid)
    for key, values in extra.items():
        for value in values:
            yield authorization.Attributes("impersonate", _AUTHENTICATION, "userextras", key, name=value)
