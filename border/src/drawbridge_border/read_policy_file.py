"""The bytes of a policy file, and by what one sees that it has changed.

Invariants: no pipe or device is waited for; no more than the largest policy and one byte is read. Links are
followed: a mounted ConfigMap is a chain of them, and changes where it leads.
"""

import errno
import os
import stat
from typing import Literal, NamedTuple

from .parse_policy import POLICY_BYTES_MAX

UnreadableReason = Literal["policy_absent", "policy_unreadable", "policy_not_a_file"]

# Change time and inode: whatever is written, replaced or forbidden changes one of them. Unlike the time of
# modification, the change time cannot be set by a program.
Signature = tuple[int, int]


class UnreadableError(Exception):
    """There is no file to read, and why."""

    def __init__(self, reason: UnreadableReason) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason: UnreadableReason = reason


class PolicyBytes(NamedTuple):
    """What a file held when it was read."""

    data: bytes
    signature: Signature
    changed_at_ns: int


def read_policy_file(path: str) -> PolicyBytes:
    """Read the file; of one that is too large, one byte more than is allowed. Raises UnreadableError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UnreadableError(reason_of(error)) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableError("policy_not_a_file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(POLICY_BYTES_MAX + 1)
        signature = (found.st_ctime_ns, found.st_ino)
        return PolicyBytes(data, signature, found.st_ctime_ns)
    except OSError:
        raise UnreadableError("policy_unreadable") from None
    finally:
        os.close(descriptor)


def reason_of(error: OSError) -> UnreadableReason:
    """Why a path cannot be opened."""
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return "policy_absent"
    return "policy_not_a_file" if error.errno in {errno.ELOOP, errno.ENXIO} else "policy_unreadable"
