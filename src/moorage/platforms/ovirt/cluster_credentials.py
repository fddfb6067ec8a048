"""The engine's credentials as a cluster keeps them: a Secret with the keys that oVirt's controllers have always read.

For our own calls its values become the file that the rest of this platform reads, so both obey the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage import errors
from moorage.engine import secret
from moorage.platforms.ovirt import credentials as credential
from moorage.platforms.ovirt import machines_manifests

SECRET: Final = machines_manifests.CREDENTIALS

_FILE: Final = "ovirt-config.yaml"
_NEEDED: Final = ("ovirt_url", "ovirt_username", "ovirt_password")


def environ(plain: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """The file of these values, and the variable that names it."""
    if missing := [key for key in _NEEDED if not plain.get(key, "").strip()]:
        raise errors.ConfigError(f"Secret {SECRET}: {', '.join(missing)} is missing", remedy="add it to the Secret")
    who = credential.Credentials(
        url=plain["ovirt_url"].strip(),
        username=plain["ovirt_username"].strip(),
        password=secret.Secret(plain["ovirt_password"]),
        ca_bundle=plain.get("ovirt_ca_bundle", ""),
        insecure=plain.get("ovirt_insecure", "").strip().lower() == "true",
    )
    path = folder / _FILE
    found = {credential.ENVIRONMENT: str(path)}
    try:
        credential.write(path, who, replace=True)
        credential.read(found)  # what is wrong with it is told now, and not by the first call
    except errors.ConfigError as wrong:
        # The file is ours, and another one each time: nobody could correct it, and what is told would change each time.
        raise errors.ConfigError(wrong.message.replace(str(path), f"Secret {SECRET}"), remedy=wrong.remedy) from None
    except ValueError:
        remedy = f"it looks like https://engine.example.com{credential.API_PATH}"
        raise errors.ConfigError(f"Secret {SECRET}: ovirt_url is not a URL", remedy=remedy) from None
    return found
