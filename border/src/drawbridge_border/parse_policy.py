"""What policy.json says, read so that nothing in it is guessed.

Invariants: a policy is taken whole or refused whole, for one reason of a closed set; two texts that mean the
same have one digest, and it is the digest that the renderer computes (src/rendered-files/border-policy.ts).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal, NoReturn

from .server_name import is_server_name

POLICY_BYTES_MAX = 16 * 1024 * 1024

RefusalReason = Literal[
    "too_large",
    "not_utf8",
    "not_json",
    "too_deep",
    "duplicate_key",
    "unknown_key",
    "wrong_type",
    "bad_server_name",
    "bad_invite_rule",
]


class PolicyRefusedError(Exception):
    """This is no policy, and why."""

    def __init__(self, reason: RefusalReason) -> None:
        """Keep the reason; the text that was refused is not kept."""
        super().__init__(reason)
        self.reason: RefusalReason = reason


@dataclass(frozen=True, slots=True)
class Policy:
    """A valid policy. Whether it can be in force is decided where it is watched."""

    allowed_servers: frozenset[str]
    denies_all_invites: bool
    digest: str


def parse_policy(data: bytes) -> Policy:
    """Validate the whole text. Raises PolicyRefusedError."""
    document = _parse_json(data)
    if not isinstance(document, dict):
        raise PolicyRefusedError("wrong_type")
    if not document.keys() <= {"allowed_servers", "invite_rule"}:
        raise PolicyRefusedError("unknown_key")
    names = document.get("allowed_servers")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PolicyRefusedError("wrong_type")
    if not all(map(is_server_name, names)):
        raise PolicyRefusedError("bad_server_name")
    if "invite_rule" in document and document["invite_rule"] != "deny_all":
        raise PolicyRefusedError("bad_invite_rule")
    servers = frozenset(names)
    denies_all_invites = "invite_rule" in document
    return Policy(servers, denies_all_invites, _digest(servers, denies_all_invites=denies_all_invites))


def _digest(servers: frozenset[str], *, denies_all_invites: bool) -> str:
    """SHA-256 over the canonical form (RFC 8785) of this one shape.

    Server names are ASCII without quotes or backslashes: their order by code points is that by UTF-16 code
    units, and none needs an escape.
    """
    names = ",".join(f'"{name}"' for name in sorted(servers))
    rule = '"deny_all"' if denies_all_invites else "null"
    canonical = f'{{"allowed_servers":[{names}],"invite_rule":{rule}}}'
    return f"sha256:{hashlib.sha256(canonical.encode('ascii')).hexdigest()}"


def _parse_json(data: bytes) -> object:
    if len(data) > POLICY_BYTES_MAX:
        raise PolicyRefusedError("too_large")
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise PolicyRefusedError("not_utf8") from None
    try:
        # A policy holds no number, so none is ever converted: NaN, Infinity and huge ones included.
        return json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_refuse_number,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError:
        raise PolicyRefusedError("too_deep") from None
    except ValueError:
        raise PolicyRefusedError("not_json") from None


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise PolicyRefusedError("duplicate_key")
    return members


def _refuse_number(_text: str) -> NoReturn:
    raise PolicyRefusedError("wrong_type")
