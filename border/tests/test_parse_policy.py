"""PLN-3: a policy is taken whole or refused whole, and has the digest that the renderer computes."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbridge_border.parse_policy import POLICY_BYTES_MAX, Policy, PolicyRefusedError, parse_policy
from drawbridge_border.server_name import is_server_name

FIXTURE = json.loads(
    (Path(__file__).parents[2] / "tests/fixtures/border/policies.json").read_text(encoding="utf-8")
)


def refusal(data: bytes) -> str:
    with pytest.raises(PolicyRefusedError) as refused:
        parse_policy(data)
    return refused.value.reason


@pytest.mark.parametrize("case", FIXTURE["valid"], ids=lambda case: case["name"])
def test_the_digest_is_the_renderers(case: dict[str, str]) -> None:
    policy = parse_policy(case["text"].encode())
    assert policy.digest == case["digest"]
    assert policy.allowed_servers == frozenset(json.loads(case["text"])["allowed_servers"])


@pytest.mark.parametrize(
    "case", FIXTURE["refused"] + FIXTURE["refusedByTheModule"], ids=lambda case: case["name"]
)
def test_what_is_no_policy_is_refused_by_its_reason(case: dict[str, str]) -> None:
    assert refusal(case["text"].encode()) == case["reason"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 1_000_000, "too_deep"),
        (b'{"allowed_servers":' * 200_000, "too_deep"),
        (b" " * (POLICY_BYTES_MAX + 1), "too_large"),
        (b'{"allowed_servers":["\xff"]}', "not_utf8"),
        (b'{"allowed_servers":["\xed\xa0\x80.test"]}', "not_utf8"),
        (b'{"allowed_servers":' + b"1" * 100_000 + b"}", "wrong_type"),
        (b"\x00", "not_json"),
        ('{"allowed_servers":["a.test"]}'.encode("utf-16"), "not_utf8"),
    ],
    ids=["deep list", "deep object", "large", "no UTF-8", "surrogate", "huge number", "NUL", "UTF-16"],
)
def test_hostile_bytes_are_refused(data: bytes, reason: str) -> None:
    assert refusal(data) == reason


def test_the_largest_policy_is_read() -> None:
    padding = b" " * (POLICY_BYTES_MAX - len(b'{"allowed_servers":["a.test"]}'))
    assert parse_policy(b'{"allowed_servers":["a.test"]}' + padding).allowed_servers == {"a.test"}


def outcome(data: bytes) -> Policy | None:
    try:
        return parse_policy(data)
    except PolicyRefusedError:
        return None


@given(st.binary(max_size=300))
def test_random_bytes_open_nothing(data: bytes) -> None:
    assert outcome(data) is None


SERVERS = st.from_regex(r"[a-zA-Z0-9.-]{1,20}(:[0-9]{1,5})?", fullmatch=True)


@settings(max_examples=300)
@given(st.lists(SERVERS, max_size=8), st.data())
def test_a_damaged_policy_never_admits_a_server_that_it_does_not_name(
    servers: list[str], data: st.DataObject
) -> None:
    text = bytearray(json.dumps({"allowed_servers": servers}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        action = data.draw(st.sampled_from(["flip", "insert", "delete"]))
        if action == "flip":
            text[place] = data.draw(st.integers(0, 255))
        elif action == "insert":
            text.insert(place, data.draw(st.integers(0, 255)))
        elif len(text) > 1:
            del text[place]
    policy = outcome(bytes(text))
    if policy is not None:
        # Another reader sees exactly the same, and nothing but names.
        assert policy.allowed_servers == set(json.loads(bytes(text))["allowed_servers"])
        assert all(is_server_name(server) for server in policy.allowed_servers)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | SERVERS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["allowed_servers", "invite_rule", "x"]) | st.text(), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@settings(max_examples=300)
@given(JSON)
def test_of_all_json_only_policies_are_taken(value: object) -> None:
    policy = outcome(json.dumps(value).encode())
    is_policy = (
        isinstance(value, dict)
        and value.keys() <= {"allowed_servers", "invite_rule"}
        and isinstance(value.get("allowed_servers"), list)
        and all(isinstance(name, str) and is_server_name(name) for name in value["allowed_servers"])
        and value.get("invite_rule", "deny_all") == "deny_all"
    )
    assert (policy is not None) == is_policy


@given(st.lists(SERVERS, min_size=1, max_size=8), SERVERS, st.randoms())
def test_one_digest_for_one_meaning(servers: list[str], other: str, random: "object") -> None:
    shuffled = list(servers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    digest = parse_policy(json.dumps({"allowed_servers": servers}).encode()).digest
    same = json.dumps({"allowed_servers": shuffled + servers[:1]}, indent=3).encode()
    assert parse_policy(same).digest == digest
    changed = parse_policy(json.dumps({"allowed_servers": [*servers, other]}).encode()).digest
    assert (changed == digest) == (other in servers)
    ruled = json.dumps({"allowed_servers": servers, "invite_rule": "deny_all"}).encode()
    assert parse_policy(ruled).digest != digest
