"""The module's section of homeserver.yaml. Unknown keys are refused."""

from dataclasses import dataclass
from typing import Literal

from synapse.module_api.errors import ConfigError

_PATHS = ("policy_file", "violations_file", "status_token_file")
_CHOICES = {"relayed_events": ("reject", "accept")}


@dataclass(frozen=True, slots=True)
class BorderConfig:
    """Absolute paths, and what is left to choose."""

    policy_file: str
    violations_file: str
    status_token_file: str
    relayed_events: Literal["reject", "accept"] = "reject"


def parse_config(section: object) -> BorderConfig:
    """Raise ConfigError, which keeps the homeserver from starting."""
    if not isinstance(section, dict):
        raise ConfigError(f"drawbridge_border needs a section with {', '.join(_PATHS)}")
    unknown = sorted(str(key) for key in section.keys() - {*_PATHS, *_CHOICES})
    if unknown:
        raise ConfigError(f"drawbridge_border does not know {', '.join(unknown)}")
    for name in _PATHS:
        value = section.get(name)
        if not isinstance(value, str) or not value.startswith("/"):
            raise ConfigError(f"drawbridge_border needs {name}, an absolute path")
    for name, choices in _CHOICES.items():
        if name in section and section[name] not in choices:
            raise ConfigError(f"drawbridge_border: {name} is {' or '.join(choices)}")
    return BorderConfig(**section)
