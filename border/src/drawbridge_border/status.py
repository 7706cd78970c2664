"""The status resource: what is in force, for an operator who holds the token.

Invariants: no answer without the token, compared in constant time; the token is read from its file at each
request, so it is rotated by writing the file; answers hold identifiers, digests, counts and times alone.
"""

import hashlib
import hmac
from datetime import datetime, timezone
from http import HTTPStatus

from synapse.http.site import SynapseRequest
from synapse.module_api import DirectServeJsonResource, parse_json_object_from_request
from synapse.module_api.errors import Codes, SynapseError

from .border import Border
from .enforced_acls import EnforcedAcls
from .server_name import is_server_name
from .violations import ViolationLog

PREFIX = "/_synapse/client/drawbridge/v1"
_TOKEN_BYTES_MAX = 4096
_IDENTIFIERS_MAX = 1000

JsonObject = dict[str, object]


class StatusToken:
    """The bearer token, from its file."""

    def __init__(self, path: str) -> None:
        """path: one line, readable by the homeserver's user alone."""
        self._path = path

    def demand(self, request: SynapseRequest) -> None:
        """Raise SynapseError unless the request carries the token."""
        given = _bearer_of(request)
        if given is None:
            raise SynapseError(HTTPStatus.UNAUTHORIZED, "Missing token", Codes.MISSING_TOKEN)
        try:
            with open(self._path, "rb") as file:
                expected = file.read(_TOKEN_BYTES_MAX).strip()
        except OSError:
            expected = b""
        if not expected:
            raise SynapseError(
                HTTPStatus.SERVICE_UNAVAILABLE, "The status token's file is missing or empty", Codes.UNKNOWN
            )
        if not hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(expected).digest()):
            raise SynapseError(HTTPStatus.FORBIDDEN, "Wrong token", Codes.FORBIDDEN)


def _bearer_of(request: SynapseRequest) -> bytes | None:
    headers = request.requestHeaders.getRawHeaders(b"authorization") or []
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(b" ")
    return bytes(token).strip() if scheme.lower() == b"bearer" and token.strip() else None


def _argument(request: SynapseRequest, name: bytes) -> str:
    values = request.args.get(name, [])
    try:
        if len(values) == 1 and 0 < len(values[0]) <= 255:
            return str(values[0].decode("utf-8"))
    except UnicodeDecodeError:
        pass
    raise SynapseError(HTTPStatus.BAD_REQUEST, f"{name.decode()} is needed once", Codes.INVALID_PARAM)


def _server_argument(request: SynapseRequest) -> str:
    server = _argument(request, b"server")
    if not is_server_name(server):
        raise SynapseError(HTTPStatus.BAD_REQUEST, "server is no server name", Codes.INVALID_PARAM)
    return server


class _Guarded(DirectServeJsonResource):
    """A resource that answers nobody without the token."""

    def __init__(self, token: StatusToken) -> None:
        """Demand this token."""
        super().__init__()
        self._token = token

    async def _async_render(self, request: SynapseRequest) -> tuple[int, JsonObject] | None:
        self._token.demand(request)
        return await super()._async_render(request)


class BorderStatus(_Guarded):
    """GET …/border: what is in force, and what has been denied since the process started."""

    def __init__(
        self, token: StatusToken, border: Border, violations: ViolationLog, *, started_at_ns: int
    ) -> None:
        """Answer from these. started_at_ns: when the process loaded the module."""
        super().__init__(token)
        self._started_at = _iso(started_at_ns)
        self._border = border
        self._violations = violations

    async def _async_render_GET(self, _request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        policy = self._border.policy.current()
        alarm: str | None = policy.alarm
        if alarm is None and self._violations.is_failing:
            alarm = "violations_not_written"
        return 200, {
            "policy_digest": policy.digest,
            "loaded_at": _iso(policy.loaded_at_ns),
            "started_at": self._started_at,
            "state": policy.state,
            "alarm": alarm,
            "servers": len(policy.allowed),
            "invite_rule": "deny_all" if policy.denies_all_invites else None,
            "counts": dict(self._border.counts),
            "errors": self._border.errors,
        }


class ServerCheck(_Guarded):
    """GET …/check?server=…: whether a server's events would come in."""

    def __init__(self, token: StatusToken, border: Border) -> None:
        """Answer from these."""
        super().__init__(token)
        self._border = border

    async def _async_render_GET(self, request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        server = _server_argument(request)
        policy = self._border.policy.current()
        return 200, {"server": server, "allowed": server in policy.allowed, "policy_digest": policy.digest}


class AclEnforcement(_Guarded):
    """GET …/enforcement?room_id=…&server=…: what the homeserver enforces of a room's ACL."""

    def __init__(self, token: StatusToken, acls: EnforcedAcls) -> None:
        """Answer from these."""
        super().__init__(token)
        self._acls = acls

    async def _async_render_GET(self, request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        room_id, server = _argument(request, b"room_id"), _server_argument(request)
        found = await self._acls.enforcement(room_id, server)
        return 200, {"room_id": room_id, "server": server, **found._asdict()}


class AclDifferences(_Guarded):
    """POST …/enforcement/differing {"rooms", "servers"}: where the ACL in force is not the state's."""

    def __init__(self, token: StatusToken, acls: EnforcedAcls) -> None:
        """Answer from these."""
        super().__init__(token)
        self._acls = acls

    async def _async_render_POST(self, request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        body = parse_json_object_from_request(request)
        rooms, servers = _identifiers(body, "rooms"), _identifiers(body, "servers")
        differing, compared = await self._acls.differing(rooms, servers)
        return 200, {"differing": differing, "compared": compared}


def _identifiers(body: JsonObject, name: str) -> list[str]:
    values = body.get(name)
    if isinstance(values, list) and len(values) <= _IDENTIFIERS_MAX:
        texts = [value for value in values if isinstance(value, str) and 0 < len(value) <= 255]
        if len(texts) == len(values):
            return texts
    raise SynapseError(
        HTTPStatus.BAD_REQUEST,
        f"{name} must list at most {_IDENTIFIERS_MAX} identifiers",
        Codes.INVALID_PARAM,
    )


class AclRefresh(_Guarded):
    """POST …/enforcement/refresh {"room_id"}: have a room's ACL read anew."""

    def __init__(self, token: StatusToken, acls: EnforcedAcls) -> None:
        """Answer from these."""
        super().__init__(token)
        self._acls = acls

    async def _async_render_POST(self, request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        room_id = parse_json_object_from_request(request).get("room_id")
        if not isinstance(room_id, str) or not 0 < len(room_id) <= 255:
            raise SynapseError(HTTPStatus.BAD_REQUEST, "room_id is needed", Codes.INVALID_PARAM)
        self._acls.forget(room_id)
        return 200, {"room_id": room_id, "refreshed": True}


class JoinedRooms(_Guarded):
    """POST …/rooms {"after"}: the rooms that local users are in, behind this one."""

    def __init__(self, token: StatusToken, acls: EnforcedAcls) -> None:
        """Answer from these."""
        super().__init__(token)
        self._acls = acls

    async def _async_render_POST(self, request: SynapseRequest) -> tuple[int, JsonObject]:  # noqa: N802
        after = parse_json_object_from_request(request).get("after")
        if not isinstance(after, str):
            raise SynapseError(HTTPStatus.BAD_REQUEST, "after is needed", Codes.INVALID_PARAM)
        rooms, complete = await self._acls.joined_rooms(after)
        return 200, {"rooms": rooms, "complete": complete}


def _iso(at_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns / 1_000_000_000, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
