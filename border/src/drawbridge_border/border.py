"""The decision whether a server may come in; counts and records of denials. callbacks.py answers with it.

Invariants: a server passes only if the policy in force names it exactly, port included; the local server's
own people are never stopped from what concerns nobody else; each event is counted and recorded once, however
often the homeserver asks about it, as long as it is among the last 4,096 of this process.
"""

from collections import OrderedDict
from typing import Protocol

from .policy_in_force import InForce
from .violations import ViolationReason

_REMEMBERED_EVENTS_MAX = 4096


class PolicySource(Protocol):
    """Where the policy in force comes from."""

    def current(self) -> InForce:
        """What is in force now."""


class ViolationSink(Protocol):
    """Where denials are written."""

    def write(
        self,
        reason: ViolationReason,
        server: str | None,
        *,
        room: object = None,
        event: object = None,
        policy_digest: str | None,
    ) -> None:
        """Record one denial."""


class Border:
    """The policy applied."""

    def __init__(self, local_server: str, policy: PolicySource, violations: ViolationSink) -> None:
        """local_server: exact, as in user IDs."""
        self.local_server = local_server
        self.policy = policy
        self._violations = violations
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self.counts: dict[ViolationReason, int] = {"server_not_allowed": 0, "invite_rule_denied": 0}
        self.errors = 0

    def admits(self, server: str) -> bool:
        """Whether a server may take part. The local one always may, in what stays at home."""
        return server == self.local_server or server in self.policy.current().allowed

    def deny(
        self, reason: ViolationReason, server: str | None, *, room: object = None, event: object = None
    ) -> None:
        """Count and record a denial that has been decided."""
        if isinstance(event, str):
            # In the first room versions the sender writes the ID, whose length nothing has checked yet.
            key = hash(event)
            if key in self._remembered:
                self._remembered.move_to_end(key)
                return
            self._remembered[key] = None
            if len(self._remembered) > _REMEMBERED_EVENTS_MAX:
                self._remembered.popitem(last=False)
        self.counts[reason] += 1
        digest = self.policy.current().digest
        self._violations.write(reason, server, room=room, event=event, policy_digest=digest)
