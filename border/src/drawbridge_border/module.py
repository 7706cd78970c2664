"""The module as the homeserver loads it: everything wired together.

Invariant: once it is constructed, every callback is registered; what it cannot do, it refuses at start.
"""

import logging
import time

from synapse.module_api import ModuleApi
from synapse.module_api.errors import ConfigError

from .border import Border
from .callbacks import Callbacks
from .config import BorderConfig, parse_config
from .enforced_acls import EnforcedAcls, UnsupportedHomeserverError
from .policy_in_force import InForce, WatchedPolicy
from .status import (
    PREFIX,
    AclDifferences,
    AclEnforcement,
    AclRefresh,
    BorderStatus,
    JoinedRooms,
    ServerCheck,
    StatusToken,
)
from .violations import ViolationLog

logger = logging.getLogger(__name__)


class BorderModule:
    """`module: drawbridge_border.BorderModule` in homeserver.yaml."""

    @staticmethod
    def parse_config(section: object) -> BorderConfig:
        """Raise ConfigError for a section that cannot work."""
        return parse_config(section)

    def __init__(self, config: BorderConfig, api: ModuleApi) -> None:
        """Register all callbacks and the status resource."""
        try:
            acls = EnforcedAcls(api)
        except UnsupportedHomeserverError as error:
            raise ConfigError(
                f"drawbridge_border does not know this version of Synapse: it lacks {error}. "
                "Install the version that the module's documentation names, or a newer module."
            ) from None
        violations = ViolationLog(
            config.violations_file, logging.getLogger("drawbridge_border.violations"), time.time_ns
        )
        policy = WatchedPolicy(
            config.policy_file, api.server_name, clock_ns=time.time_ns, on_change=_log_change
        )
        border = Border(api.server_name, policy, violations)
        callbacks = Callbacks(border, acls, acls, rejects_relayed_events=config.relayed_events == "reject")
        api.register_spam_checker_callbacks(
            should_drop_federated_event=callbacks.should_drop_federated_event,
            federated_user_may_invite=callbacks.federated_user_may_invite,
            check_event_for_spam=callbacks.check_event_for_spam,
            user_may_invite=callbacks.user_may_invite,
            user_may_join_room=callbacks.user_may_join_room,
            user_may_create_room=callbacks.user_may_create_room,
        )
        api.register_third_party_rules_callbacks(
            check_event_allowed=callbacks.check_event_allowed,
            on_new_event=callbacks.on_new_event,
        )
        token = StatusToken(config.status_token_file)
        api.register_web_resource(
            f"{PREFIX}/border", BorderStatus(token, border, violations, started_at_ns=time.time_ns())
        )
        api.register_web_resource(f"{PREFIX}/check", ServerCheck(token, border))
        api.register_web_resource(f"{PREFIX}/enforcement", AclEnforcement(token, acls))
        api.register_web_resource(f"{PREFIX}/enforcement/differing", AclDifferences(token, acls))
        api.register_web_resource(f"{PREFIX}/enforcement/refresh", AclRefresh(token, acls))
        api.register_web_resource(f"{PREFIX}/rooms", JoinedRooms(token, acls))


def _log_change(policy: InForce) -> None:
    if policy.alarm is None:
        logger.info("policy %s is in force, %d servers", policy.digest, len(policy.allowed))
    else:
        logger.error("policy alarm %s: %s, digest %s", policy.alarm, policy.state, policy.digest)
