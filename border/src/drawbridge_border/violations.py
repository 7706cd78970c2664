"""The violations file: one JSON line for each denial (svc_federation_policy_violation).

Invariants: a line holds identifiers, a reason, a digest and a time, never content; a denial stands whether or
not its line could be written; a torn line never spoils the next one.
"""

import json
import os
import stat
from collections.abc import Callable
from datetime import datetime, timezone
from logging import Logger
from typing import Literal

from .server_name import as_identifier

SCHEMA = "svc_federation_policy_violation"
ViolationReason = Literal["server_not_allowed", "invite_rule_denied"]

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class ViolationLog:
    """Appends to a file that others may move away, and to the homeserver's log."""

    def __init__(self, path: str, logger: Logger, clock_ns: Callable[[], int]) -> None:
        """Open the file at once, so that a wrong path is an alarm from the start."""
        self._path = path
        self._logger = logger
        self._clock_ns = clock_ns
        self._descriptor: int | None = None
        self._is_torn = False
        self.is_failing = False
        self._attempt(self._open)

    def write(
        self,
        reason: ViolationReason,
        server: str | None,
        *,
        room: object = None,
        event: object = None,
        policy_digest: str | None,
    ) -> None:
        """Record one denial. Never raises for what the file system says."""
        now = datetime.fromtimestamp(self._clock_ns() / 1_000_000_000, timezone.utc)
        line = json.dumps(
            {
                "schema": SCHEMA,
                "reason": reason,
                "server": as_identifier(server),
                "room": as_identifier(room),
                "event": as_identifier(event),
                "policy_digest": policy_digest,
                "at": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            },
            separators=(",", ":"),
        )
        self._logger.warning("%s", line)
        self._attempt(lambda: self._append(f"{line}\n".encode("ascii")))

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            if not self.is_failing:
                self._logger.error(  # noqa: TRY400 - the reason, and not where in this file
                    "Violations cannot be written to their file (%s); denials go on", error.strerror
                )
            self.is_failing = True
            self._close()
        else:
            if self.is_failing:
                self._logger.warning("Violations are written to their file again")
            self.is_failing = False

    def _append(self, line: bytes) -> None:
        descriptor = self._open()
        data = b"\n" + line if self._is_torn else line
        if os.write(descriptor, data) < len(data):
            raise OSError(0, "written in part")
        self._is_torn = False

    def _open(self) -> int:
        if self._descriptor is not None:
            if self._is_current(self._descriptor):
                return self._descriptor
            self._close()
        descriptor = os.open(self._path, _FLAGS, 0o640)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "not a regular file")
        self._descriptor = descriptor
        self._is_torn = _ends_within_a_line(descriptor)
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        mine = os.fstat(descriptor)
        try:
            named = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _ends_within_a_line(descriptor: int) -> bool:
    """Whether somebody who wrote here before, such as this module, was cut off."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
