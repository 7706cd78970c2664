"""PLN-3: each callback lets pass exactly whom the policy names, and whatever goes wrong denies."""

from __future__ import annotations

import inspect
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from synapse.module_api import NOT_SPAM
from synapse.module_api.errors import Codes

from drawbridge_border.border import Border
from drawbridge_border.callbacks import Callbacks
from drawbridge_border.policy_in_force import InForce
from support import OWN, PARTNER, ROOM, THIRD, event, member, now

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from synapse.events import EventBase

    from drawbridge_border.violations import ViolationReason

ALICE, BOB, DORA = f"@alice:{OWN}", f"@bob:{PARTNER}", f"@dora:{THIRD}"
DIGEST = f"sha256:{'1' * 64}"


class Policy:
    def __init__(self, *servers: str, denies_all_invites: bool = False) -> None:
        self.in_force = InForce(frozenset(servers), denies_all_invites, DIGEST, "in_force", None, 0)

    def current(self) -> InForce:
        return self.in_force


class Broken(Policy):
    def current(self) -> InForce:
        raise RuntimeError("a secret that must not be logged")


class Record:
    def __init__(self) -> None:
        self.written: list[tuple[object, ...]] = []

    def write(
        self,
        reason: ViolationReason,
        server: str | None,
        *,
        room: object = None,
        event: object = None,
        policy_digest: str | None,
    ) -> None:
        self.written.append((reason, server, room, event, policy_digest))


class Homeserver:
    """The enforcing cache, the invitations and who is in which room."""

    def __init__(self, inviter: str | None = None) -> None:
        self.inviter = inviter
        self.joined: set[tuple[str, str]] = set()
        self.forgotten: list[str] = []

    def forget(self, room_id: str) -> None:
        self.forgotten.append(room_id)

    async def inviter_of(self, _user_id: str, _room_id: str) -> str | None:
        return self.inviter

    async def is_joined(self, user_id: str, room_id: str) -> bool:
        assert user_id.endswith(f":{OWN}"), "of others the homeserver knows nothing"
        return (user_id, room_id) in self.joined


class Fixture:
    def __init__(self, policy: Policy, inviter: str | None = None, *, relayed: bool = True) -> None:
        self.record = Record()
        self.homeserver = Homeserver(inviter)
        self.border = Border(OWN, policy, self.record)
        self.ask = Callbacks(self.border, self.homeserver, self.homeserver, rejects_relayed_events=relayed)


def admitting(*servers: str, **options: bool) -> Fixture:
    return Fixture(Policy(OWN, *servers, **options))


def test_events_come_in_from_listed_servers_alone_and_ports_are_compared() -> None:
    fixture = admitting(THIRD)
    assert now(fixture.ask.should_drop_federated_event(event(DORA))) is False
    for sender in (BOB, f"@dora:{THIRD.split(':')[0]}", f"@dora:{THIRD}0", f"@dora:{THIRD.upper()}"):
        assert now(fixture.ask.should_drop_federated_event(event(sender))) is True
    assert [server for _, server, *_ in fixture.record.written] == [
        PARTNER, "d.test", "d.test:84480", "D.TEST:8448",
    ]  # fmt: skip


def test_an_event_is_counted_and_recorded_once_however_often_it_is_asked_about() -> None:
    fixture = admitting()
    message = event(BOB)
    for _ in range(3):
        assert now(fixture.ask.should_drop_federated_event(message)) is True
        assert now(fixture.ask.check_event_for_spam(message)) is Codes.FORBIDDEN
    assert fixture.record.written == [("server_not_allowed", PARTNER, ROOM, message.event_id, DIGEST)]
    assert fixture.border.counts == {"server_not_allowed": 1, "invite_rule_denied": 0}


def test_of_the_events_that_were_recorded_those_that_were_asked_about_last_are_remembered() -> None:
    fixture = admitting()

    def count_of(*events: str) -> int:
        before = fixture.border.counts["server_not_allowed"]
        for one in events:
            fixture.border.deny("server_not_allowed", PARTNER, event=one)
        return fixture.border.counts["server_not_allowed"] - before

    assert count_of("$first", "$second", "$first") == 2
    assert count_of(*(f"${number}" for number in range(4_095))) == 4_095
    assert count_of("$first") == 0, "asked about again, so that it is the second that was forgotten"
    assert count_of("$second") == 1


def test_of_events_that_were_recorded_no_long_id_is_kept() -> None:
    fixture = admitting()
    tracemalloc.start()
    for number in range(100):
        fixture.border.deny("server_not_allowed", PARTNER, event=f"${number:0100000}")
        fixture.record.written.clear()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    assert fixture.border.counts["server_not_allowed"] == 100


def test_an_invitation_is_answered_by_a_code_or_not_spam_and_never_by_a_bool() -> None:
    invitation = member(DORA, "invite", ALICE)
    fixture = admitting(THIRD)
    assert now(fixture.ask.federated_user_may_invite(invitation)) is NOT_SPAM
    assert now(fixture.ask.federated_user_may_invite(member(BOB, "invite", ALICE))) is Codes.FORBIDDEN
    ruled = admitting(THIRD, denies_all_invites=True)
    assert now(ruled.ask.federated_user_may_invite(invitation)) is Codes.FORBIDDEN
    assert now(ruled.ask.federated_user_may_invite(member(BOB, "invite", ALICE))) is Codes.FORBIDDEN
    assert ruled.border.counts == {"server_not_allowed": 1, "invite_rule_denied": 1}
    assert now(ruled.ask.should_drop_federated_event(event(DORA))) is False


def test_an_invitation_of_somebody_who_is_in_the_room_is_denied() -> None:
    fixture = admitting(THIRD)
    invitation = member(DORA, "invite", ALICE)
    fixture.homeserver.joined = {(f"@anna:{OWN}", ROOM), (ALICE, f"!other:{OWN}")}
    assert now(fixture.ask.federated_user_may_invite(invitation)) is NOT_SPAM
    fixture.homeserver.joined = {(ALICE, ROOM)}
    assert now(fixture.ask.federated_user_may_invite(invitation)) is Codes.FORBIDDEN
    assert fixture.record.written == [], "the policy allows the server"
    for target in (BOB, None):
        other = event(DORA, "m.room.member", state_key=target, content={"membership": "invite"})
        answer = now(fixture.ask.federated_user_may_invite(other))
        assert answer is NOT_SPAM, "the homeserver refuses it itself"


def test_relayed_messages_are_emptied_and_state_is_left_alone() -> None:
    fixture = admitting(THIRD)
    assert now(fixture.ask.check_event_for_spam(event(BOB))) is Codes.FORBIDDEN
    assert now(fixture.ask.check_event_for_spam(event(BOB, "m.room.topic", state_key=""))) is NOT_SPAM
    for sender in (ALICE, DORA):
        assert now(fixture.ask.check_event_for_spam(event(sender))) is NOT_SPAM
    accepting = Fixture(Policy(OWN), relayed=False)
    assert now(accepting.ask.check_event_for_spam(event(BOB))) is NOT_SPAM


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (member(ALICE, "invite", BOB), False),
        (member(ALICE, "invite", DORA), True),
        (member(ALICE, "invite", f"@anna:{OWN}"), True),
        (member(ALICE, "ban", BOB), True),
        (member(ALICE, "leave", BOB), True),
        (member(ALICE, "join"), True),
        (member(BOB, "join"), False),
        (member(BOB, "knock"), False),
        (member(BOB, "leave"), True),
        (member(DORA, "join"), True),
        (event(ALICE), True),
        (event(ALICE, "m.room.server_acl", state_key=""), True),
        (event(BOB), False),
    ],
)
def test_templates_and_local_events(asked: EventBase, allowed: bool) -> None:
    fixture = admitting(THIRD)
    assert now(fixture.ask.check_event_allowed(asked, {})) == (allowed, None)
    assert len(fixture.record.written) == (0 if allowed else 1)


def test_who_is_invited_by_people_at_home() -> None:
    fixture = admitting(THIRD)
    assert now(fixture.ask.user_may_invite(ALICE, DORA, ROOM)) is NOT_SPAM
    assert now(fixture.ask.user_may_invite(ALICE, BOB, ROOM)) is Codes.FORBIDDEN
    assert now(fixture.ask.user_may_create_room(ALICE, {"invite": [DORA]})) is NOT_SPAM
    assert now(fixture.ask.user_may_create_room(ALICE, {})) is NOT_SPAM
    assert now(fixture.ask.user_may_create_room(ALICE, {"invite": [DORA, BOB]})) is Codes.FORBIDDEN
    assert now(fixture.ask.user_may_create_room(ALICE, {"invite": ["nobody"]})) is Codes.FORBIDDEN


@pytest.mark.parametrize(
    ("room", "inviter", "answer"),
    [
        (ROOM, None, NOT_SPAM),
        ("!abcdefg", None, NOT_SPAM),
        (f"!room:{PARTNER}", None, Codes.FORBIDDEN),
        ("!abcdefg", BOB, Codes.FORBIDDEN),
        ("!abcdefg", DORA, NOT_SPAM),
        (ROOM, ALICE, NOT_SPAM),
    ],
)
def test_rooms_that_people_at_home_join(room: str, inviter: str | None, answer: object) -> None:
    fixture = Fixture(Policy(OWN, THIRD), inviter)
    assert now(fixture.ask.user_may_join_room(ALICE, room, inviter is not None)) is answer


def test_with_nobody_allowed_people_at_home_go_on_among_themselves() -> None:
    fixture = Fixture(Policy(), ALICE)
    anna = f"@anna:{OWN}"
    assert now(fixture.ask.check_event_allowed(event(ALICE), {})) == (True, None)
    assert now(fixture.ask.check_event_allowed(member(ALICE, "invite", anna), {})) == (True, None)
    assert now(fixture.ask.check_event_for_spam(event(ALICE))) is NOT_SPAM
    assert now(fixture.ask.user_may_invite(ALICE, anna, ROOM)) is NOT_SPAM
    assert now(fixture.ask.user_may_join_room(anna, ROOM, True)) is NOT_SPAM
    # What claims to come from home but came from outside is not from home.
    assert now(fixture.ask.should_drop_federated_event(event(ALICE))) is True
    assert fixture.record.written[0][1] == OWN


def test_a_new_acl_is_forgotten_and_nothing_else() -> None:
    fixture = admitting()
    now(fixture.ask.on_new_event(event(ALICE), {}))
    now(fixture.ask.on_new_event(event(ALICE, "m.room.server_acl"), {}))
    assert fixture.homeserver.forgotten == []
    now(fixture.ask.on_new_event(event(ALICE, "m.room.server_acl", state_key=""), {}))
    assert fixture.homeserver.forgotten == [ROOM]


def test_the_acl_of_a_room_that_a_local_user_has_joined_is_forgotten() -> None:
    fixture = admitting()
    for membership, user in (("invite", ALICE), ("leave", ALICE), ("join", BOB)):
        now(fixture.ask.on_new_event(member(user, membership, user), {}))
    assert fixture.homeserver.forgotten == []
    now(fixture.ask.on_new_event(member(ALICE, "join", ALICE), {}))
    assert fixture.homeserver.forgotten == [ROOM]


def test_an_internal_error_denies_is_counted_and_logs_no_message(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture(Broken())
    ask, message = fixture.ask, event(BOB)
    denials: list[tuple[Awaitable[object], object]] = [
        (ask.should_drop_federated_event(message), True),
        (ask.federated_user_may_invite(message), Codes.FORBIDDEN),
        (ask.check_event_for_spam(message), Codes.FORBIDDEN),
        (ask.check_event_allowed(message, {}), (False, None)),
        (ask.user_may_invite(ALICE, BOB, ROOM), Codes.FORBIDDEN),
        (ask.user_may_join_room(ALICE, f"!room:{PARTNER}", False), Codes.FORBIDDEN),
        (ask.user_may_create_room(ALICE, {"invite": [BOB]}), Codes.FORBIDDEN),
    ]
    for answer, denial in denials:
        assert now(answer) == denial
    assert fixture.border.errors == len(denials)
    assert "secret" not in caplog.text
    assert caplog.text.count("RuntimeError") == len(denials)


@pytest.mark.parametrize("sender", ["", "@nobody", "nobody", "@:", None])
def test_a_sender_that_is_none_is_denied(sender: object) -> None:
    fixture = admitting(PARTNER)

    class Hostile:
        room_id, event_id, type = ROOM, "$hostile", "m.room.message"

        def is_state(self) -> bool:
            return False

        def get_state_key(self) -> None:
            return None

    hostile = Hostile()
    hostile.sender = sender  # type: ignore[attr-defined]
    denials: list[tuple[Awaitable[object], object]] = [
        (fixture.ask.should_drop_federated_event(hostile), True),  # type: ignore[arg-type]
        (fixture.ask.federated_user_may_invite(hostile), Codes.FORBIDDEN),  # type: ignore[arg-type]
        (fixture.ask.check_event_for_spam(hostile), Codes.FORBIDDEN),  # type: ignore[arg-type]
        (fixture.ask.check_event_allowed(hostile, {}), (False, None)),  # type: ignore[arg-type]
    ]
    for answer, denial in denials:
        assert now(answer) == denial


def test_the_homeserver_finds_the_parameters_that_it_needs() -> None:
    # It passes a room's configuration only to a callback that has two parameters.
    assert len(inspect.signature(admitting().ask.user_may_create_room).parameters) == 2
