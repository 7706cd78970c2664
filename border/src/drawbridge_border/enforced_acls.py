"""What the homeserver enforces of a room's ACL, how it is made to look again, and who is in which room.

This uses what Synapse does not promise to keep: the storage controllers and the store. Invariant: whatever of
it is missing is found at start, and the homeserver does not start; so nothing here is ever guessed.
"""

import contextlib
import importlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from synapse.api.constants import EventTypes, Membership
from synapse.module_api import ModuleApi
from synapse.util.stringutils import parse_server_name

if TYPE_CHECKING:
    from synapse.events import EventBase
    from synapse.storage.database import LoggingTransaction

_NOT_CACHED = object()
# Stands for every server that nobody names (RFC 2606, section 2).
_UNNAMED_SERVER = "unnamed-server.invalid"
# Each name is compared with all in the ACL, ten thousand at most.
_COMPARISONS_MAX = 200_000
# The homeserver does nothing else while an ACL is compiled or a name compared. Between them it is given a
# turn this often.
_TURN_SECONDS = 0.01
# What one request may compare. The rooms that are left are not called compared, and are asked about again.
_REQUEST_SECONDS = 3.0
# The homeserver's own list of rooms is made from statistics, which lag behind and can be switched off.
_JOINED_ROOMS = """
    SELECT DISTINCT room_id FROM local_current_membership
    WHERE membership = 'join' AND room_id > ? ORDER BY room_id LIMIT ?
"""
_ROOMS_MAX = 10_000


class _Evaluator(Protocol):
    def server_matches_acl_event(self, server_name: str) -> bool: ...


class _CachedLookup(Protocol):
    @property
    def cache(self) -> "_Cache": ...

    def __call__(self, room_id: str) -> Awaitable[_Evaluator | None]: ...

    def invalidate(self, key: tuple[str]) -> None: ...


class _Cache(Protocol):
    # The evaluator, None where the room has no ACL, or `default`.
    def get_immediate(self, key: str, default: object, *, update_metrics: bool) -> Any: ...  # noqa: ANN401


class UnsupportedHomeserverError(Exception):
    """This Synapse is not one that the module knows from inside."""


class Enforcement(NamedTuple):
    """What decides about a server's requests for a room, in this process."""

    allowed: bool
    cached: bool
    state_event_id: str | None
    enforces_state: bool


class EnforcedAcls:
    """The homeserver's enforcing cache."""

    def __init__(self, api: ModuleApi) -> None:
        """Raise UnsupportedHomeserverError if this Synapse keeps its ACLs elsewhere."""
        try:
            homeserver = api._hs  # noqa: SLF001 - the module API has no way to it
            state = homeserver.get_storage_controllers().state
            self._lookup: _CachedLookup = state.get_server_acl_for_room  # type: ignore[assignment]
            self._forget = self._lookup.invalidate
            self._cached = self._lookup.cache.get_immediate
            self._state_event = state.get_current_state_event
            store = homeserver.get_datastores().main
            self._invite = store.get_invite_for_local_user_in_room
            self._membership = store.get_local_current_membership_for_user_in_room
            acls = importlib.import_module("synapse.storage.controllers.state")
            self._evaluator_of: Callable[[EventBase], _Evaluator] = acls.server_acl_evaluator_from_event
            self._sleep = api.sleep
            self._query = api.run_db_interaction
        except (AttributeError, ImportError) as error:
            raise UnsupportedHomeserverError(error.name) from None

    async def enforcement(self, room_id: str, server: str) -> Enforcement:
        """What is enforced for a server (its port has no part in ACLs), and whether the state says the same.

        Raises ValueError for what is no server name.
        """
        host, _ = parse_server_name(server)
        is_cached = self._cached(room_id, _NOT_CACHED, update_metrics=False) is not _NOT_CACHED
        enforced = _allows(await self._lookup(room_id), host)
        event = await self._state_event(room_id, EventTypes.ServerACL, "")
        stated = _allows(None if event is None else self._evaluator_of(event), host)
        return Enforcement(
            allowed=enforced,
            cached=is_cached,
            state_event_id=None if event is None else event.event_id,
            enforces_state=enforced == stated,
        )

    async def differing(self, room_ids: Sequence[str], servers: Iterable[str]) -> tuple[list[str], int]:
        """Which of the rooms have an ACL in force that differs from their state, and how many were compared.

        They are compared in their order: the first always, the others as long as there is time.
        They are compared for these servers, for those that `_names_of` the state's ACL gives, and for
        one that nobody names. A room that is not cached does not differ: its next request reads the state.
        A room whose state the homeserver cannot compile differs, and keeps no other from being compared.
        Nor does a room that the homeserver has left: it has no state of it any more, and nothing to enforce.
        """
        hosts = {_UNNAMED_SERVER, *_hosts(servers)}
        found: list[str] = []
        turns = _Turns(self._sleep)
        for compared, room_id in enumerate(room_ids):
            await turns.give()
            if compared > 0 and turns.spent > _REQUEST_SECONDS:
                return found, compared
            if self._cached(room_id, _NOT_CACHED, update_metrics=False) is _NOT_CACHED:
                continue
            event = await self._state_event(room_id, EventTypes.ServerACL, "")
            # After the state: an ACL that is set meanwhile leaves nothing in the cache.
            enforced = self._cached(room_id, _NOT_CACHED, update_metrics=False)
            if enforced is _NOT_CACHED or (event is None and not await self._is_in(room_id)):
                continue
            try:
                stated = None if event is None else self._evaluator_of(event)
            except Exception:  # noqa: BLE001 - an ACL that cannot be compiled, which any moderator can write
                found.append(room_id)
                continue
            named = set() if event is None else _hosts(_names_of(event.content))
            for host in hosts | named:
                if _allows(enforced, host) != _allows(stated, host):
                    found.append(room_id)
                    break
                await turns.give()
        return found, len(room_ids)

    async def _is_in(self, room_id: str) -> bool:
        return await self._state_event(room_id, EventTypes.Create, "") is not None

    async def joined_rooms(self, after: str) -> tuple[list[str], bool]:
        """List the first rooms behind this one, by ID, that local users are in, and whether these are all."""

        def read(txn: "LoggingTransaction") -> list[str]:
            txn.execute(_JOINED_ROOMS, (after, _ROOMS_MAX))
            return [room_id for (room_id,) in txn]

        rooms = await self._query("drawbridge_joined_rooms", read)
        return rooms, len(rooms) < _ROOMS_MAX

    def forget(self, room_id: str) -> None:
        """Have the room's ACL read from its state at the next request."""
        self._forget((room_id,))

    async def inviter_of(self, user_id: str, room_id: str) -> str | None:
        """Who invited a local user to a room, if there is an invitation."""
        invite = await self._invite(user_id, room_id)
        return None if invite is None else invite.sender

    async def is_joined(self, user_id: str, room_id: str) -> bool:
        """Whether a local user is in a room."""
        membership, _ = await self._membership(user_id, room_id)
        return membership == Membership.JOIN


class _Turns:
    """Gives the homeserver a turn now and then, and measures what is spent between the turns."""

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Give a turn by this."""
        self.spent = 0.0
        self._sleep = sleep
        self._since = time.monotonic()

    async def give(self) -> None:
        """Give a turn if one is due."""
        if (passed := time.monotonic() - self._since) > _TURN_SECONDS:
            self.spent += passed
            await self._sleep(0)
            self._since = time.monotonic()


def _allows(evaluator: _Evaluator | None, host: str) -> bool:
    return evaluator is None or evaluator.server_matches_acl_event(host)


def _names_of(acl: Mapping[str, object]) -> list[str]:
    """The servers that an ACL names without a wildcard; of more than some four hundred names the last."""
    lists = (acl.get(key) for key in ("allow", "deny"))
    entries = [name for names in lists if isinstance(names, list | tuple) for name in names]
    named = [name for name in entries if isinstance(name, str) and "*" not in name and "?" not in name]
    return named[-_COMPARISONS_MAX // (len(entries) or 1) :]


def _hosts(servers: Iterable[str]) -> set[str]:
    hosts = set()
    for server in servers:
        with contextlib.suppress(ValueError):
            hosts.add(parse_server_name(server)[0])
    return hosts
