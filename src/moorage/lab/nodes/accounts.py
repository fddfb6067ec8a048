"""Users and groups: those that the machine's image has, and those that a config makes or changes."""

from __future__ import annotations

import dataclasses

from moorage.lab.nodes import disk, specs

_FIRST_NUMBER = 1001


@dataclasses.dataclass(frozen=True)
class User:
    """Somebody who may own files and log in with these keys."""

    name: str
    uid: int
    gid: int
    home: str
    ssh_keys: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    password_hash: str | None = None


class Accounts:
    """Who is who on a machine; root and core come with the image."""

    def __init__(self) -> None:
        self.users = {"root": User("root", 0, 0, "/root"), "core": User("core", 1000, 1000, "/home/core")}
        self.groups = {"root": 0, "core": 1000, "wheel": 10, "sudo": 16, "adm": 4, "systemd-journal": 190}

    def owner(self, node: specs.Config, uid: int, gid: int) -> tuple[int, int]:
        """Whom a path shall belong to, if not to whom it does."""
        user, group = node.get("user") or {}, node.get("group") or {}
        if user.get("id") is not None:
            uid = user["id"]
        elif user.get("name"):
            if user["name"] not in self.users:
                raise specs.IgnitionError(
                    f'error setting permissions for {node["path"]}: no such user "{user["name"]}"'
                )
            uid = self.users[user["name"]].uid
        if group.get("id") is not None:
            gid = group["id"]
        elif group.get("name"):
            gid = self._group(group["name"], f"error setting permissions for {node['path']}")
        return uid, gid

    def _group(self, name: str, trouble: str) -> int:
        if name not in self.groups:
            raise specs.IgnitionError(f'{trouble}: no such group "{name}"')
        return self.groups[name]

    def _free(self) -> int:
        taken = {user.uid for user in self.users.values()} | set(self.groups.values())
        return next(number for number in range(_FIRST_NUMBER, 2**31) if number not in taken)

    def ensure_group(self, said: specs.Config) -> None:
        name = said["name"]
        if said.get("shouldExist") is False:
            self.groups.pop(name, None)
        elif said.get("gid") is not None:
            self.groups[name] = said["gid"]
        else:
            self.groups.setdefault(name, self._free())

    def ensure_user(self, said: specs.Config) -> User | None:
        """Make or change a user; None if he shall not be."""
        name = said["name"]
        if said.get("shouldExist") is False:
            self.users.pop(name, None)
            return None
        trouble = f'failed to create user "{name}"'
        groups = tuple(said.get("groups") or ())
        for each in groups:
            self._group(each, trouble)
        there = self.users.get(name)
        if there is None:
            number = said["uid"] if said.get("uid") is not None else self._free()
            own = not said.get("noUserGroup") and not said.get("primaryGroup")
            there = User(name, number, self.groups.setdefault(name, number) if own else 100, f"/home/{name}")
        gid = self._group(said["primaryGroup"], trouble) if said.get("primaryGroup") else there.gid
        self.users[name] = dataclasses.replace(
            there,
            uid=there.uid if said.get("uid") is None else said["uid"],
            gid=gid,
            home=said.get("homeDir") or there.home,
            ssh_keys=tuple(said.get("sshAuthorizedKeys") or ()),
            groups=groups,
            password_hash=said.get("passwordHash"),
        )
        return self.users[name]


def made(passwd: specs.Config, target: disk.Disk) -> Accounts:
    """Make the groups and users of a config, and write down whose keys open the door."""
    found = Accounts()
    for group in passwd.get("groups") or []:
        found.ensure_group(group)
    for said in passwd.get("users") or []:
        user = found.ensure_user(said)
        if user is not None and user.ssh_keys:
            _authorize(user, target)
    return found


def _authorize(user: User, target: disk.Disk) -> None:
    folder = f"{user.home}/.ssh"
    for path in (folder, f"{folder}/authorized_keys.d"):
        if target.at(path) is None:
            target.put(path, disk.Directory(0o700, user.uid, user.gid))
    keys = "\n".join(user.ssh_keys)
    content = (keys if keys.endswith("\n") else keys + "\n").encode()
    target.put(f"{folder}/authorized_keys.d/ignition", disk.File(content, 0o600, user.uid, user.gid))
