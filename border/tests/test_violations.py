"""AUD-1: one content-free line for each denial, and a denial that does not depend on it."""

import errno
import json
import os
from pathlib import Path

import pytest

from drawbridge_border.violations import ViolationLog
from support import PARTNER, ROOM, Lines, logger_into

DIGEST = f"sha256:{'0' * 64}"
AT_NS = 1_700_000_000_123_000_000


def log_to(path: Path, lines: Lines) -> ViolationLog:
    return ViolationLog(str(path), logger_into(lines, "test.violations"), lambda: AT_NS)


def deny(log: ViolationLog, event: str = "$event") -> None:
    log.write("server_not_allowed", PARTNER, room=ROOM, event=event, policy_digest=DIGEST)


def is_failing(log: ViolationLog) -> bool:
    return log.is_failing


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line != ""]


def test_a_line_holds_the_schemas_fields_and_goes_to_both_places(tmp_path: Path) -> None:
    path, lines = tmp_path / "violations.jsonl", Lines()
    deny(log_to(path, lines))
    expected = {
        "schema": "svc_federation_policy_violation",
        "reason": "server_not_allowed",
        "server": PARTNER,
        "room": ROOM,
        "event": "$event",
        "policy_digest": DIGEST,
        "at": "2023-11-14T22:13:20.123Z",
    }
    assert written(path) == [expected]
    assert [json.loads(line.removeprefix("WARNING ")) for line in lines.lines] == [expected]
    assert path.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("hostile", ["a b", "line\nbreak", "ü", "x" * 256, "", 7, None, "\x1b[31m"])
def test_what_is_no_identifier_is_not_written(tmp_path: Path, hostile: object) -> None:
    path = tmp_path / "violations.jsonl"
    log_to(path, Lines()).write(
        "server_not_allowed", PARTNER, room=hostile, event=hostile, policy_digest=None
    )
    [line] = written(path)
    assert (line["room"], line["event"]) == (None, None)


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "violations.jsonl"
    log = log_to(path, Lines())
    deny(log, "$one")
    path.rename(tmp_path / "violations.jsonl.1")
    deny(log, "$two")
    path.unlink()
    deny(log, "$three")
    assert [line["event"] for line in written(tmp_path / "violations.jsonl.1")] == ["$one"]
    assert [line["event"] for line in written(path)] == ["$three"]


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "violations.jsonl"
    deny(log_to(path, Lines()), "$one")
    deny(log_to(path, Lines()), "$two")
    assert [line["event"] for line in written(path)] == ["$one", "$two"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "no folder"])
def test_what_cannot_be_written_to_is_an_alarm_from_the_start_and_no_error(tmp_path: Path, kind: str) -> None:
    path, lines = tmp_path / "place" / "violations.jsonl", Lines()
    if kind != "no folder":
        path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    log = log_to(path, lines)
    assert is_failing(log)
    deny(log)
    deny(log)
    assert is_failing(log)
    assert sum(line.startswith("ERROR") for line in lines.lines) == 1, "the alarm is raised once"
    assert sum("server_not_allowed" in line for line in lines.lines) == 2, "the homeserver's log has them"

    if kind == "folder":
        path.rmdir()
    elif kind == "no folder":
        path.parent.mkdir()
    else:
        path.unlink()
    deny(log, "$after")
    assert not is_failing(log)
    assert [line["event"] for line in written(path)] == ["$after"]


def test_a_full_disk_raises_the_alarm_and_a_torn_line_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "violations.jsonl"
    log = log_to(path, Lines())
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
    deny(log, "$torn")
    assert is_failing(log)

    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    deny(log, "$lost")
    assert is_failing(log)
    monkeypatch.undo()
    deny(log, "$next")
    assert not is_failing(log)
    assert json.loads(path.read_text().splitlines()[-1])["event"] == "$next"
