"""PLN-3: the policy in force is the file's at the next check; what cannot be read denies everybody."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drawbridge_border import policy_in_force
from drawbridge_border.policy_in_force import InForce, WatchedPolicy
from drawbridge_border.read_policy_file import PolicyBytes, read_policy_file
from support import OWN, PARTNER, THIRD, policy_text, replace

# Long after every change that a test makes, so that what is read counts as settled.
LATER_NS = 4_000_000_000_000_000_000


class Watched:
    """A watched policy with what it has reported and how often it has read."""

    def __init__(self, path: Path, clock_ns: Callable[[], int] = lambda: LATER_NS) -> None:
        self.path = path
        self.reported: list[InForce] = []
        self.reads = 0
        self.policy = WatchedPolicy(
            str(path), OWN, clock_ns=clock_ns, on_change=self.reported.append, read=self._read
        )

    def _read(self, path: str) -> PolicyBytes:
        self.reads += 1
        return read_policy_file(path)

    def state(self) -> tuple[str, str | None, set[str]]:
        now = self.policy.current()
        return now.state, now.alarm, set(now.allowed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "policy.json"
    replace(file, policy_text([OWN, PARTNER]))
    return file


def test_a_new_file_decides_at_the_next_check(path: Path) -> None:
    watched = Watched(path)
    assert watched.state() == ("in_force", None, {OWN, PARTNER})
    replace(path, policy_text([OWN, THIRD]))
    assert watched.state() == ("in_force", None, {OWN, THIRD})
    path.write_bytes(policy_text([OWN]))
    assert watched.state() == ("in_force", None, {OWN})


def test_a_file_that_has_not_changed_is_not_read_again(path: Path) -> None:
    watched = Watched(path)
    for _ in range(100):
        watched.policy.current()
    assert watched.reads == 1
    assert len(watched.reported) == 1


def test_a_file_that_means_the_same_is_not_reported_as_a_change(path: Path) -> None:
    watched = Watched(path)
    replace(path, policy_text([OWN, PARTNER]))
    assert watched.state() == ("in_force", None, {OWN, PARTNER})
    assert len(watched.reported) == 1


def test_a_change_within_one_tick_of_the_file_systems_clock_is_observed(path: Path) -> None:
    # The second content has the same time and inode as the first, so that stat cannot tell them apart.
    found = path.stat()
    changed_at = found.st_ctime_ns
    clock = [changed_at + 1]
    contents = [policy_text([OWN, PARTNER]), policy_text([OWN, THIRD]), policy_text([OWN])]
    signature = (changed_at, found.st_ino)
    policy = WatchedPolicy(
        str(path),
        OWN,
        clock_ns=lambda: clock[0],
        on_change=lambda _: None,
        read=lambda _: PolicyBytes(contents[0], signature, changed_at),
    )
    assert PARTNER in policy.current().allowed
    del contents[0]
    clock[0] = changed_at + 20_000_000
    assert policy.current().allowed == {OWN, THIRD}
    del contents[0]
    assert policy.current().allowed == {OWN, THIRD}, "once the tick has passed nothing can change unseen"


@pytest.mark.parametrize(
    ("data", "alarm"),
    [
        (b"{", "not_json"),
        (b"", "not_json"),
        (policy_text([OWN, "*"]), "bad_server_name"),
        (policy_text([OWN], denied_servers=[]), "unknown_key"),
        (b"\xff", "not_utf8"),
        (b'{"allowed_servers":[],"allowed_servers":["%s"]}' % OWN.encode(), "duplicate_key"),
        (b" " * (16 * 1024 * 1024 + 1), "too_large"),
    ],
)
def test_a_refused_file_leaves_the_last_valid_policy_and_raises_an_alarm(
    path: Path, data: bytes, alarm: str
) -> None:
    watched = Watched(path)
    digest = watched.policy.current().digest
    replace(path, data)
    assert watched.state() == ("last_valid", alarm, {OWN, PARTNER})
    assert watched.policy.current().digest == digest
    assert [one.alarm for one in watched.reported] == [None, alarm]

    fresh = Watched(path)
    assert fresh.state() == ("deny_all", alarm, set())
    assert fresh.policy.current().digest is None

    replace(path, policy_text([OWN]))
    assert watched.state() == fresh.state() == ("in_force", None, {OWN})


@pytest.mark.parametrize(
    ("data", "alarm"),
    [(policy_text([PARTNER, THIRD]), "local_server_missing"), (policy_text([]), "no_servers")],
)
def test_a_policy_without_the_local_server_denies_everybody(path: Path, data: bytes, alarm: str) -> None:
    watched = Watched(path)
    before = watched.policy.current().digest
    replace(path, data)
    assert watched.state() == ("deny_all", alarm, set())
    assert watched.policy.current().denies_all_invites
    assert watched.policy.current().digest not in {None, before}
    # A broken file after it opens nothing: what stays in force is the denial.
    replace(path, b"{")
    assert watched.state() == ("deny_all", "not_json", set())


def test_a_local_server_named_without_its_port_is_missing(path: Path) -> None:
    replace(path, policy_text([OWN.split(":", maxsplit=1)[0], PARTNER]))
    assert Watched(path).state() == ("deny_all", "local_server_missing", set())


def put_nothing(_path: Path) -> None:
    """The file is gone."""


def put_circle(path: Path) -> None:
    path.symlink_to(path.name)


def put_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere.json")


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("put", "alarm"),
    [
        (put_nothing, "policy_absent"),
        (put_circle, "policy_not_a_file"),
        (put_link_to_nothing, "policy_absent"),
        (put_pipe, "policy_not_a_file"),
        (put_folder, "policy_not_a_file"),
    ],
)
def test_what_is_no_readable_file_denies_everybody_until_there_is_one(
    path: Path, put: Callable[[Path], None], alarm: str
) -> None:
    watched = Watched(path)
    path.unlink()
    put(path)
    for _ in range(3):
        assert watched.state() == ("deny_all", alarm, set())
    assert Watched(path).state() == ("deny_all", alarm, set())
    assert len(watched.reported) == 2, "an alarm is reported once"

    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    replace(path, policy_text([OWN, PARTNER]))
    assert watched.state() == ("in_force", None, {OWN, PARTNER})


def test_an_error_while_a_file_is_taken_up_does_not_leave_the_policy_before_it_in_force(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(path)

    def fail(_data: bytes) -> NoReturn:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(policy_in_force, "parse_policy", fail)
        replace(path, policy_text([OWN]))
        for _ in range(2):
            with pytest.raises(MemoryError):
                watched.policy.current()
    assert watched.state() == ("in_force", None, {OWN})


def test_a_mounted_config_map_is_followed(tmp_path: Path) -> None:
    """As the kubelet lays it out: the file leads through a link that is replaced at each change."""

    def put(generation: str, servers: list[str]) -> None:
        folder = tmp_path / generation
        folder.mkdir()
        (folder / "policy.json").write_bytes(policy_text(servers))
        (tmp_path / "..data_tmp").symlink_to(generation)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    put("..1", [OWN, PARTNER])
    path = tmp_path / "policy.json"
    path.symlink_to("..data/policy.json")
    watched = Watched(path)
    assert watched.state() == ("in_force", None, {OWN, PARTNER})
    put("..2", [OWN])
    assert watched.state() == ("in_force", None, {OWN})


def test_a_file_that_may_not_be_read_denies_everybody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(path)

    def refuse(*_args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    replace(path, policy_text([OWN, THIRD]))
    assert watched.state() == ("deny_all", "policy_unreadable", set())
    monkeypatch.undo()
    assert watched.state() == ("in_force", None, {OWN, THIRD})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.sampled_from(["good", "other", "broken", "foreign", "gone", "bytes"]), max_size=8),
    st.binary(),
)
def test_whatever_happens_to_the_file_only_valid_policies_admit(
    tmp_path: Path, steps: list[str], noise: bytes
) -> None:
    path = tmp_path / "policy.json"
    path.unlink(missing_ok=True)
    watched = Watched(path)
    last_valid: set[str] = set()
    for step in steps:
        if step == "gone":
            path.unlink(missing_ok=True)
            last_valid = set()
        elif step in {"broken", "bytes"}:
            replace(path, b"{" if step == "broken" else noise)
        else:
            servers = {"good": {OWN, PARTNER}, "other": {OWN, THIRD}, "foreign": {PARTNER}}[step]
            replace(path, policy_text(sorted(servers)))
            last_valid = servers if OWN in servers else set()
        now = watched.policy.current()
        assert set(now.allowed) == last_valid
        assert (now.state == "deny_all") == (not last_valid)
