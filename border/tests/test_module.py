"""The module's section of homeserver.yaml, and a homeserver that it does not know from inside."""

from __future__ import annotations

import itertools
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from synapse.module_api.errors import ConfigError
from synapse.storage.controllers.state import server_acl_evaluator_from_event

from drawbridge_border import BorderModule, enforced_acls
from drawbridge_border.enforced_acls import EnforcedAcls
from support import PARTNER, event, now

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from synapse.events import EventBase

GOOD = {"policy_file": "/p", "violations_file": "/v", "status_token_file": "/t"}


def test_a_whole_section_is_taken() -> None:
    assert BorderModule.parse_config(GOOD).relayed_events == "reject"
    assert BorderModule.parse_config({**GOOD, "relayed_events": "accept"}).relayed_events == "accept"


@pytest.mark.parametrize(
    "section",
    [
        None,
        [],
        {},
        {**GOOD, "policy": "/p"},
        {**GOOD, "policy_file": "relative"},
        {**GOOD, "policy_file": 1},
        {"policy_file": "/p", "violations_file": "/v"},
        {**GOOD, "relayed_events": "maybe"},
        {**GOOD, "relayed_events": []},
    ],
)
def test_a_section_that_cannot_work_keeps_the_homeserver_from_starting(section: object) -> None:
    with pytest.raises(ConfigError):
        BorderModule.parse_config(section)


class Cache:
    def __init__(self) -> None:
        self.entries: dict[str, object] = {}

    def get_immediate(self, key: str, default: object, *, update_metrics: bool) -> object:
        return self.entries.get(key, default)


class Lookup:
    """The homeserver's cached look-up of a room's ACL."""

    def __init__(self, evaluator: object) -> None:
        self.cache = Cache()
        self.evaluator = evaluator

    async def __call__(self, room_id: str) -> object:
        return self.cache.entries.setdefault(room_id, self.evaluator)

    def invalidate(self, key: tuple[str]) -> None:
        self.cache.entries.pop(key[0], None)


def fake_api(lookup: object, acl: object = None, without: str = "", *, is_in: bool = True) -> SimpleNamespace:
    async def current(_room: str, kind: str = "", _key: str = "") -> object:
        return is_in if kind == "m.room.create" and is_in else acl

    state = SimpleNamespace(get_server_acl_for_room=lookup, get_current_state_event=current)
    store = SimpleNamespace(
        get_invite_for_local_user_in_room=current, get_local_current_membership_for_user_in_room=current
    )
    for holder in (state, store):
        if hasattr(holder, without):
            delattr(holder, without)
    homeserver = SimpleNamespace(
        get_storage_controllers=lambda: SimpleNamespace(state=state),
        get_datastores=lambda: SimpleNamespace(main=store),
    )

    async def sleep(_seconds: float) -> None:
        pass

    return SimpleNamespace(_hs=homeserver, server_name="a.test", sleep=sleep, run_db_interaction=None)


@pytest.mark.parametrize(
    "missing",
    [
        "get_server_acl_for_room",
        "get_current_state_event",
        "get_invite_for_local_user_in_room",
        "get_local_current_membership_for_user_in_room",
    ],
)
def test_a_homeserver_without_what_the_module_needs_does_not_start(missing: str, tmp_path: Path) -> None:
    api = fake_api(Lookup(None), without=missing)
    with pytest.raises(ConfigError, match=missing):
        BorderModule(BorderModule.parse_config(GOOD), api)  # type: ignore[arg-type]


def test_the_rooms_that_local_users_are_in_are_listed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE local_current_membership (room_id TEXT, user_id TEXT, membership TEXT)")
    memberships = [("!2", "@a", "join"), ("!1", "@a", "join"), ("!1", "@b", "join"), ("!3", "@a", "join")]
    more = [("!4", "@a", "leave"), ("!4", "@b", "invite")]
    database.executemany("INSERT INTO local_current_membership VALUES (?, ?, ?)", memberships + more)

    async def run(_description: str, read: Callable[[sqlite3.Cursor], object]) -> object:
        return read(database.cursor())

    api = fake_api(Lookup(None))
    api.run_db_interaction = run
    acls = EnforcedAcls(api)  # type: ignore[arg-type]
    assert now(acls.joined_rooms("")) == (["!1", "!2", "!3"], True)
    monkeypatch.setattr(enforced_acls, "_ROOMS_MAX", 2)
    assert now(acls.joined_rooms("")) == (["!1", "!2"], False)
    assert now(acls.joined_rooms("!2")) == (["!3"], True)


async def ask(acls: EnforcedAcls, server: str) -> tuple[object, ...]:
    return tuple(await acls.enforcement("!room", server))


def test_a_stale_entry_is_found_and_forgotten() -> None:
    acl = event("@a:a.test", "m.room.server_acl", state_key="", content={"allow": ["*"], "deny": ["b.test"]})
    lookup = Lookup(None)
    acls = EnforcedAcls(fake_api(lookup, acl))  # type: ignore[arg-type]
    assert now(ask(acls, PARTNER)) == (True, False, acl.event_id, False), "not what the state says"
    assert now(ask(acls, PARTNER)) == (True, True, acl.event_id, False)
    assert now(ask(acls, "c.test")) == (True, True, acl.event_id, True)
    acls.forget("!room")
    assert lookup.cache.entries == {}


def test_rooms_whose_cached_acl_is_not_the_one_of_their_state_differ() -> None:
    def acl(*deny: str, allow: tuple[str, ...] = ("*",)) -> EventBase:
        content: dict[str, object] = {"allow": [*allow], "deny": [*deny]}
        return event("@a:a.test", "m.room.server_acl", state_key="", content=content)

    def differs(cached: EventBase | None, state: EventBase | None, *servers: str, is_in: bool = True) -> bool:
        lookup = Lookup(None if cached is None else server_acl_evaluator_from_event(cached))
        acls = EnforcedAcls(fake_api(lookup, state, is_in=is_in))  # type: ignore[arg-type]
        assert now(acls.differing(["!room"], servers)) == ([], 1), "nothing is cached"
        now(acls.enforcement("!room", "a.test"))
        return now(acls.differing(["!room"], servers)) == (["!room"], 1)

    governed = acl(allow=("a.test", "b.test"))
    assert differs(None, governed), "a server that nobody names is let in"
    assert differs(acl("b.test"), governed)
    assert differs(acl(allow=("a.test",)), governed), "a server that the state names is kept out"
    assert differs(acl("b.test"), None, PARTNER)
    assert not differs(governed, acl(allow=("a.test", "b.test")), PARTNER)
    assert not differs(None, None, PARTNER)
    assert not differs(acl("b.test"), None, PARTNER, is_in=False), "the homeserver has left the room"


def test_an_acl_that_cannot_be_compiled_keeps_no_other_room_from_being_compared() -> None:
    acl = event("@b:b.test", "m.room.server_acl", state_key="", content={"deny": ["?" * 60_000]})
    with pytest.raises(Exception, match="regex"):
        server_acl_evaluator_from_event(acl)
    acls = EnforcedAcls(fake_api(Lookup(None), acl))  # type: ignore[arg-type]
    acls._cached = lambda *_, **__: None
    assert now(acls.differing(["!room", "!other"], [PARTNER])) == (["!room", "!other"], 2)


def test_an_acl_of_thousands_of_names_does_not_keep_the_homeserver_busy() -> None:
    names = [f"s{number}.test" for number in range(4_000)]
    acl = event("@a:a.test", "m.room.server_acl", state_key="", content={"allow": ["*"], "deny": names})
    asked: list[str] = []

    def matches(host: str) -> bool:
        asked.append(host)
        return host not in names

    lookup = Lookup(SimpleNamespace(server_matches_acl_event=matches))
    acls = EnforcedAcls(fake_api(lookup, acl))  # type: ignore[arg-type]
    now(acls.enforcement("!room", "a.test"))
    assert now(acls.differing(["!room"], [PARTNER])) == ([], 1)
    assert len(asked) < 100
    assert names[-1] in asked, "what was denied last"


def test_many_servers_and_slow_acls_leave_the_homeserver_its_turns_and_the_last_rooms_uncompared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = 0.0
    turns = [0.0]

    def matches(_host: str) -> bool:
        nonlocal seconds
        seconds += 0.001
        return True

    async def sleep(_seconds: float) -> None:
        turns.append(seconds)

    monkeypatch.setattr(enforced_acls, "time", SimpleNamespace(monotonic=lambda: seconds))
    rooms = [f"!{number}" for number in range(10)]
    lookup = Lookup(None)
    lookup.cache.entries.update(dict.fromkeys(rooms, SimpleNamespace(server_matches_acl_event=matches)))
    acl = event("@a:a.test", "m.room.server_acl", state_key="", content={"allow": ["*"]})
    api = fake_api(lookup, acl)
    api.sleep = sleep
    servers = [f"s{number}.test" for number in range(1_000)]
    found, compared = now(EnforcedAcls(api).differing(rooms, servers))  # type: ignore[arg-type]
    assert (found, compared) == ([], 4), "each room takes a second, and a request three"
    assert max(later - before for before, later in itertools.pairwise(turns)) < 0.02
    lookup.cache.entries[rooms[0]] = SimpleNamespace(server_matches_acl_event=lambda _host: False)
    assert now(EnforcedAcls(api).differing(rooms, servers))[0] == [rooms[0]]  # type: ignore[arg-type]

    def differs(_host: str) -> bool:
        nonlocal seconds
        seconds += 1
        return False

    lookup.cache.entries.update(dict.fromkeys(rooms, SimpleNamespace(server_matches_acl_event=differs)))
    found, compared = now(EnforcedAcls(api).differing(rooms, servers))  # type: ignore[arg-type]
    assert (found, compared) == (rooms[:4], 4), "a room that differs takes its time too"
