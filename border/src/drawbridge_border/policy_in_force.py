"""The policy in force, which is the file's at the next check.

Invariants: a file that is absent, unreadable, empty of servers or without the local one denies everybody; a
file whose content is refused changes nothing but raises an alarm, and denies everybody if nothing was in
force before; servers are never taken from a file in part; any other error is raised at
every check until the file has been read. A check that finds nothing new costs one stat(2).
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .parse_policy import Policy, PolicyRefusedError, RefusalReason, parse_policy
from .read_policy_file import (
    PolicyBytes,
    Signature,
    UnreadableError,
    UnreadableReason,
    read_policy_file,
    reason_of,
)

State = Literal["in_force", "last_valid", "deny_all"]
PolicyAlarm = Literal["local_server_missing", "no_servers"] | RefusalReason | UnreadableReason

# A file system may give two changes within one tick of its clock the same time. What was read so shortly
# after a change is read again at each check until the tick has surely passed.
_TICK_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class InForce:
    """What decides now."""

    allowed: frozenset[str]
    denies_all_invites: bool
    digest: str | None
    state: State
    alarm: PolicyAlarm | None
    loaded_at_ns: int


class WatchedPolicy:
    """Looks at the policy file whenever it is asked."""

    def __init__(
        self,
        path: str,
        local_server: str,
        *,
        clock_ns: Callable[[], int],
        on_change: Callable[[InForce], None],
        read: Callable[[str], PolicyBytes] = read_policy_file,
    ) -> None:
        """Take the file as it is now.

        clock_ns: nanoseconds since the epoch, as file systems count them.
        on_change: told of everything that comes into force, the first included.
        """
        self._path = path
        self._local_server = local_server
        self._clock_ns = clock_ns
        self._on_change = on_change
        self._read = read
        self._signature: Signature | None = None
        self._content: bytes | None = None
        self._in_force = InForce(
            frozenset(), denies_all_invites=True, digest=None, state="deny_all", alarm=None, loaded_at_ns=0
        )
        self._reload()

    def current(self) -> InForce:
        """What is in force by the file as it is at this moment."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            return self._close(reason_of(error))
        if (found.st_ctime_ns, found.st_ino) == self._signature:
            return self._in_force
        return self._reload()

    def _reload(self) -> InForce:
        try:
            read = self._read(self._path)
        except UnreadableError as error:
            return self._close(error.reason)
        is_settled = not 0 <= self._clock_ns() - read.changed_at_ns < _TICK_NS
        content = hashlib.sha256(read.data).digest()
        if content != self._content:
            try:
                self._admit(parse_policy(read.data))
            except PolicyRefusedError as error:
                self._refuse(error.reason)
        # Not before: after any other error the file is read again, and what it replaces decides nothing.
        self._content = content
        self._signature = read.signature if is_settled else None
        return self._in_force

    def _admit(self, policy: Policy) -> None:
        alarm: PolicyAlarm | None = None
        if not policy.allowed_servers:
            alarm = "no_servers"
        elif self._local_server not in policy.allowed_servers:
            alarm = "local_server_missing"
        self._swap(
            InForce(
                allowed=policy.allowed_servers if alarm is None else frozenset(),
                denies_all_invites=policy.denies_all_invites or alarm is not None,
                digest=policy.digest,
                state="in_force" if alarm is None else "deny_all",
                alarm=alarm,
                loaded_at_ns=self._clock_ns(),
            )
        )

    def _refuse(self, reason: RefusalReason) -> None:
        before = self._in_force
        self._swap(
            InForce(
                allowed=before.allowed,
                denies_all_invites=before.denies_all_invites,
                digest=before.digest,
                state="deny_all" if before.state == "deny_all" else "last_valid",
                alarm=reason,
                loaded_at_ns=before.loaded_at_ns if before.digest is not None else self._clock_ns(),
            )
        )

    def _close(self, reason: UnreadableReason) -> InForce:
        self._signature = None
        self._content = None
        if self._in_force.alarm == reason:
            return self._in_force
        return self._swap(
            InForce(
                allowed=frozenset(),
                denies_all_invites=True,
                digest=None,
                state="deny_all",
                alarm=reason,
                loaded_at_ns=self._clock_ns(),
            )
        )

    def _swap(self, next_in_force: InForce) -> InForce:
        self._in_force = next_in_force
        self._on_change(next_in_force)
        return next_in_force
