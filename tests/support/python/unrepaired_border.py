"""The border module without its own repair of stale ACLs, so that the rooms plane has to notice them."""

from drawbridge_border import BorderModule


class UnrepairedBorder(BorderModule):
    """Asked for nothing when an event is new; all else is as in the product."""

    def __init__(self, config, api):
        super().__init__(config, _WithoutNewEvents(api))


class _WithoutNewEvents:
    def __init__(self, api):
        self._api = api

    def __getattr__(self, name):
        return getattr(self._api, name)

    def register_third_party_rules_callbacks(self, *, on_new_event, **others):
        self._api.register_third_party_rules_callbacks(**others)
