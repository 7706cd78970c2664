"""What the homeserver asks the module, and the module's answers.

Invariants: no callback raises: an internal error denies and is counted; a callback that lets pass does no I/O
but one stat for each server that it looks up, and of an invitation or a join one query; answers are NOT_SPAM
or a code, never a bool where the homeserver reads bools the other way round.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from synapse.module_api import NOT_SPAM
from synapse.module_api.errors import Codes

from .server_name import server_of

if TYPE_CHECKING:
    from synapse.events import EventBase

    from .border import Border

logger = logging.getLogger(__name__)

# Event type and memberships: Matrix specification, m.room.member.
_MEMBER = "m.room.member"
_SERVER_ACL = "m.room.server_acl"

Answer = Codes | Literal["NOT_SPAM"]
Permission = tuple[bool, dict[str, object] | None]
FORBIDDEN: Answer = Codes.FORBIDDEN
NOT_ALLOWED: Permission = (False, None)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Method = Callable[Concatenate["Callbacks", Parameters], Awaitable[Result]]


def _closed(otherwise: Result) -> Callable[[Method[Parameters, Result]], Method[Parameters, Result]]:
    """Make an internal error the answer `otherwise`, counted and logged without its message."""

    def wrap(callback: Method[Parameters, Result]) -> Method[Parameters, Result]:
        async def guarded(self: Callbacks, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return await callback(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, it denies
                self.border.errors += 1
                logger.error("%s failed and denies: %s", callback.__name__, type(error).__name__)  # noqa: TRY400
                return otherwise

        # The homeserver looks at a callback's parameters and names it in its metrics.
        functools.update_wrapper(guarded, callback)
        return guarded

    return wrap


class Memberships(Protocol):
    """What the homeserver knows of local users in rooms."""

    async def inviter_of(self, user_id: str, room_id: str) -> str | None:
        """The user ID of who invited a local user to a room, if there is an invitation."""

    async def is_joined(self, user_id: str, room_id: str) -> bool:
        """Whether a local user is in a room."""


class AclCache(Protocol):
    """The homeserver's enforcing cache of room ACLs."""

    def forget(self, room_id: str) -> None:
        """Have the room's ACL read anew at the next request."""


class Callbacks:
    """One method for each callback that the module registers."""

    def __init__(
        self, border: Border, memberships: Memberships, acls: AclCache, *, rejects_relayed_events: bool
    ) -> None:
        """rejects_relayed_events: whether a denied server's messages are taken from other servers."""
        self.border = border
        self._policy = border.policy
        self._memberships = memberships
        self._acls = acls
        self._rejects_relayed_events = rejects_relayed_events

    # --- what other servers send ------------------------------------------------------------------------

    async def should_drop_federated_event(self, event: EventBase) -> bool:
        """Drop an event that was pushed to us, or an invitation, whose sender's server is not allowed."""
        try:
            sender = event.sender
            server = sender[sender.index(":") + 1 :]
            if server in self._policy.current().allowed:
                return False
            self.border.deny("server_not_allowed", server, room=event.room_id, event=event.event_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, it denies
            self.border.errors += 1
            logger.error("should_drop_federated_event failed and denies: %s", type(error).__name__)  # noqa: TRY400
        return True

    @_closed(FORBIDDEN)
    async def federated_user_may_invite(self, event: EventBase) -> Answer:
        """Deny an invitation from outside: by server, all of them, or of a local user who is in the room.

        The homeserver would take that user for an invited one, who may neither read nor write in the room.
        """
        server = server_of(event.sender)
        policy = self.border.policy.current()
        if server not in policy.allowed:
            self.border.deny("server_not_allowed", server, room=event.room_id, event=event.event_id)
            return Codes.FORBIDDEN
        if policy.denies_all_invites:
            self.border.deny("invite_rule_denied", server, room=event.room_id, event=event.event_id)
            return Codes.FORBIDDEN
        target = event.get_state_key()
        if target is None or server_of(target) != self.border.local_server:
            return NOT_SPAM
        if await self._memberships.is_joined(target, event.room_id):
            return Codes.FORBIDDEN
        return NOT_SPAM

    @_closed(FORBIDDEN)
    async def check_event_for_spam(self, event: EventBase) -> Answer:
        """Empty a denied server's message that a third server relays.

        The homeserver then keeps its place in the room's history without its content and shows it to nobody.
        State is left alone: without its content (an encryption setting, an ACL) a room would be less safe.
        """
        server = server_of(event.sender)
        if not self._rejects_relayed_events or self.border.admits(server) or event.is_state():
            return NOT_SPAM
        self.border.deny("server_not_allowed", server, room=event.room_id, event=event.event_id)
        return Codes.FORBIDDEN

    # --- what is made here, and the templates that other servers ask for ---------------------------------

    @_closed(NOT_ALLOWED)
    async def check_event_allowed(self, event: EventBase, _state: object) -> Permission:
        """Deny templates for joining or knocking to a denied server, and inviting its users.

        Leaving, banning and withdrawing an invitation are always possible: they close.
        """
        if event.type != _MEMBER:
            return self._allowed(server_of(event.sender), event.room_id)
        membership = event.content.get("membership")
        if membership in {"leave", "ban"}:
            return True, None
        sender = server_of(event.sender)
        target = event.get_state_key()
        if sender != self.border.local_server or membership != "invite" or target is None:
            return self._allowed(sender, event.room_id)
        return self._allowed(server_of(target), event.room_id)

    def _allowed(self, server: str, room_id: str) -> Permission:
        if self.border.admits(server):
            return True, None
        self.border.deny("server_not_allowed", server, room=room_id)
        return False, None

    @_closed(FORBIDDEN)
    async def user_may_invite(self, inviter: str, invitee: str, room_id: str) -> Answer:
        """Deny inviting a denied server's user. Asked for invitations from outside too."""
        for server in (server_of(inviter), server_of(invitee)):
            if not self.border.admits(server):
                self.border.deny("server_not_allowed", server, room=room_id)
                return Codes.FORBIDDEN
        return NOT_SPAM

    @_closed(FORBIDDEN)
    async def user_may_join_room(self, user_id: str, room_id: str, is_invited: bool) -> Answer:  # noqa: FBT001
        """Deny accepting an invitation of a denied server's user, and joining a room that its ID names."""
        servers = [server_of(room_id)] if ":" in room_id else []
        if is_invited:
            inviter = await self._memberships.inviter_of(user_id, room_id)
            servers += [] if inviter is None else [server_of(inviter)]
        for server in servers:
            if not self.border.admits(server):
                self.border.deny("server_not_allowed", server, room=room_id)
                return Codes.FORBIDDEN
        return NOT_SPAM

    @_closed(FORBIDDEN)
    async def user_may_create_room(self, _user_id: str, room_config: Mapping[str, object]) -> Answer:
        """Deny a room whose first invitations would fail, before half of it is made."""
        invited = room_config.get("invite")
        for user in invited if isinstance(invited, list) else []:
            server = server_of(user)
            if not self.border.admits(server):
                self.border.deny("server_not_allowed", server)
                return Codes.FORBIDDEN
        return NOT_SPAM

    # --- what has happened ------------------------------------------------------------------------------

    @_closed(None)
    async def on_new_event(self, event: EventBase, _state: object) -> None:
        """Have a new ACL enforced, and the ACL of a room that a local user has joined.

        The homeserver forgets its cached ACL before the new one is stored, so a request in between can fill
        the cache with the old one. And it looks up the ACL of a room that it is invited to, of which it has
        no state, and keeps the answer after the join. Here the new state is stored.
        """
        if self._may_change_the_acl(event):
            self._acls.forget(event.room_id)

    def _may_change_the_acl(self, event: EventBase) -> bool:
        state_key = event.get_state_key()
        if event.type == _SERVER_ACL:
            return state_key == ""
        return (
            event.type == _MEMBER
            and state_key is not None
            and event.content.get("membership") == "join"
            and server_of(state_key) == self.border.local_server
        )
