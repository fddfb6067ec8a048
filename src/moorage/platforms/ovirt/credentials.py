"""Who we are to the engine: the credentials file that oVirt's other tools read as well, and the writing of one.

The file is named by ``OVIRT_CONFIG`` or lies at ``~/.ovirt/ovirt-config.yaml``. It holds a password, so a file that
others may read is refused, and nothing here repeats a value of it: messages name keys and paths alone.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509

from moorage import errors
from moorage.engine import secret

ENVIRONMENT: Final = "OVIRT_CONFIG"
DEFAULT: Final = "~/.ovirt/ovirt-config.yaml"
API_PATH: Final = "/ovirt-engine/api"
CA_PATH: Final = "/ovirt-engine/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA"

_KEYS: Final = frozenset(
    (
        "ovirt_url",
        "ovirt_fqdn",
        "ovirt_pem_url",
        "ovirt_username",
        "ovirt_password",
        "ovirt_cafile",
        "ovirt_insecure",
        "ovirt_ca_bundle",
    )
)
_SURVEY = "write it with: moorage create install-config"


@dataclasses.dataclass(frozen=True)
class Credentials:
    """How to reach an engine and prove who asks. Without ``ca_bundle`` the system's own authorities are trusted."""

    url: str
    username: str
    password: secret.Secret
    ca_bundle: str = dataclasses.field(default="", repr=False)
    insecure: bool = False
    path: Path | None = None

    @property
    def fqdn(self) -> str:
        """The engine's host, with its port where that is not 443."""
        return urllib.parse.urlsplit(self.url).netloc

    @property
    def secrets(self) -> tuple[secret.Secret, ...]:
        return (self.password,)


def location(environ: Mapping[str, str]) -> Path:
    """Where the file is, or would be."""
    named = environ.get(ENVIRONMENT, "").strip()
    home = environ.get("HOME", "")
    if named and not named.startswith("~/"):
        return Path(named)
    below_home = (named or DEFAULT).removeprefix("~/")
    return (Path(home) if home else Path.home()) / below_home


def engine_url(fqdn: str) -> str:
    """The API's address at a host (or host:port)."""
    return f"https://{fqdn.strip().rstrip('/')}{API_PATH}"


def read(environ: Mapping[str, str]) -> Credentials:
    """The credentials of this user; raises `ConfigError` with what to correct."""
    path = location(environ)
    content = _mapping(path, _text(path))
    for key in ("ovirt_username", "ovirt_password"):
        if not content.get(key):
            raise errors.ConfigError(f"{path}: {key} is missing", remedy=f"add it, or {_SURVEY}")
    strange = [key for key in _KEYS - {"ovirt_insecure"} if not isinstance(content.get(key, ""), str)]
    if strange:
        # An unquoted password of digits is a number to YAML, and one that begins with 0 another number than was meant.
        raise errors.ConfigError(f"{path}: {', '.join(sorted(strange))}: not a string", remedy="put it in quotes")
    return Credentials(
        url=_url(path, content),
        username=content["ovirt_username"],
        password=secret.Secret(content["ovirt_password"]),
        ca_bundle=_bundle(path, content),
        insecure=_insecure(path, content),
        path=path,
    )


def _text(path: Path) -> str:
    try:
        # Mode and content are those of the same file, whatever is put at its path meanwhile.
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise errors.ConfigError(
                    f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}), and a password is in it",
                    remedy=f"chmod 600 {path}",
                )
            return file.read()
    except FileNotFoundError:
        raise errors.ConfigError(
            f"there are no oVirt credentials: {path} does not exist", remedy=f"set {ENVIRONMENT}, or {_SURVEY}"
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise errors.ConfigError(f"{path} cannot be read: {why}", remedy=_SURVEY) from None


def _mapping(path: Path, text: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        # The parser's own words quote the line, which may be the password's.
        mark = getattr(problem, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise errors.ConfigError(f"{path} is not YAML{where}", remedy=f"correct it, or {_SURVEY}") from None
    if not isinstance(content, dict):
        raise errors.ConfigError(f"{path} holds no mapping", remedy=f"correct it, or {_SURVEY}")
    return {str(key): value for key, value in content.items() if value is not None}


def _url(path: Path, content: Mapping[str, Any]) -> str:
    named = content.get("ovirt_url", "").strip() or (
        engine_url(content["ovirt_fqdn"]) if content.get("ovirt_fqdn") else ""
    )
    if not named:
        raise errors.ConfigError(f"{path}: ovirt_url is missing", remedy=f"add it, or {_SURVEY}")
    remedy = f"it looks like https://engine.example.com{API_PATH}"
    try:
        parts = urllib.parse.urlsplit(named)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise errors.ConfigError(f"{path}: ovirt_url is not a URL", remedy=remedy) from None
    if parts.username is not None or parts.password is not None:
        raise errors.ConfigError(f"{path}: ovirt_url holds a user name", remedy="give it as ovirt_username")
    if parts.scheme != "https" or not host:
        raise errors.ConfigError(f"{path}: ovirt_url is not an https:// address", remedy=remedy)
    return f"https://{parts.netloc}{parts.path.rstrip('/') or API_PATH}"


def _insecure(path: Path, content: Mapping[str, Any]) -> bool:
    value = content.get("ovirt_insecure", False)
    if not isinstance(value, bool):
        raise errors.ConfigError(f"{path}: ovirt_insecure is neither true nor false", remedy="use false")
    return value


def _bundle(path: Path, content: Mapping[str, Any]) -> str:
    bundle, source = content.get("ovirt_ca_bundle", ""), "ovirt_ca_bundle"
    if not bundle.strip() and content.get("ovirt_cafile"):
        file = path.parent / content["ovirt_cafile"]
        source = f"ovirt_cafile {file}"
        try:
            bundle = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise errors.ConfigError(f"{path}: {source} cannot be read", remedy="correct the path") from None
    if bundle.strip():
        try:
            x509.load_pem_x509_certificates(bundle.encode())
        except ValueError:
            raise errors.ConfigError(
                f"{path}: {source} holds no certificates in PEM form", remedy="give the engine's CA certificate"
            ) from None
    return bundle if bundle.strip() else ""


def rendered(credentials: Credentials) -> str:
    """The file's content: what this and other tools of oVirt read."""
    content: dict[str, Any] = {
        "ovirt_url": credentials.url,
        "ovirt_fqdn": credentials.fqdn,
        "ovirt_pem_url": f"https://{credentials.fqdn}{CA_PATH}",
        "ovirt_username": credentials.username,
        "ovirt_password": credentials.password.reveal(),
        "ovirt_insecure": credentials.insecure,
    }
    if credentials.ca_bundle:
        content["ovirt_ca_bundle"] = credentials.ca_bundle
    return yaml.safe_dump(content, sort_keys=False)


def write(path: Path, credentials: Credentials, *, replace: bool = False) -> bool:
    """Write the file, for its owner alone; False if it says the same already.

    A file that says something else is somebody's: it is replaced only if the caller was told to, else `ConfigError`.
    """
    wanted = rendered(credentials)
    if path.exists() or path.is_symlink():
        if _says(path, wanted):
            return False
        if not replace:
            raise errors.ConfigError(
                f"{path} exists and holds other credentials", remedy=f"move it away, or name another in {ENVIRONMENT}"
            )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(wanted)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return True


def _says(path: Path, wanted: str) -> bool:
    try:
        return bool(yaml.safe_load(_text(path)) == yaml.safe_load(wanted))
    except (errors.ConfigError, yaml.YAMLError):
        return False
