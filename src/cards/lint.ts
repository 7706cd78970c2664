// Checks the cards we issue against more than the protocol requires: only what every known canonicalizer signs alike. The
// SDKs drop empty and null members wherever they stand, and write large integers each in its own way.
import { isObject, type Json, type JsonObject, pointer } from "../domain/json.ts";
import { parseStrictJson } from "../domain/strict-json.ts";
import { checkCard } from "./card-fields.ts";
import { CARD_BYTES_MAX, problemOf } from "./reject-reasons.ts";

/** Notes what is to be repaired. @param at a JSON pointer into the card, or `offset N` in its text */
type Add = (at: string, rule: string, message: string) => void;

const WEB_BINDINGS: ReadonlySet<Json> = new Set(["JSONRPC", "HTTP+JSON"]);

/** Everything to be repaired in a card before it is signed and published; empty when it is fine. */
export function lintCard(bytes: Uint8Array) {
  let card: Json;
  try {
    card = parseStrictJson(bytes, CARD_BYTES_MAX);
  } catch (fault) {
    const { reason, at } = problemOf(fault);
    return [{ at, rule: reason, message: "it is not strict JSON; nothing else was checked" }];
  }
  const { payload, problems } = checkCard(card);
  const findings: { at: string; rule: string; message: string }[] = [];
  const add: Add = (at, rule, message) => findings.push({ at, rule, message });
  for (const { reason, at } of problems) {
    add(at, reason, "A2A 1.0 does not allow it here; every verifier should reject the card");
  }
  const { signatures: _signatures, ...signed } = isObject(card) ? card : {};
  lintValue(signed, "", add);
  if (problems.length === 0) {
    lintDefaults(signed, payload, "", add);
    lintInterfaces(payload, add);
    lintSecurity(payload, add);
    lintSkills(payload, add);
  }
  return findings;
}

/** A checked card lacks the defaults that the card spells out. */
function lintDefaults(value: Json, checked: Json | undefined, at: string, add: Add): void {
  if (checked === undefined) {
    add(at, "default_value", "it is the default and is not signed: leave it out");
  } else if (Array.isArray(value)) {
    const elements = Array.isArray(checked) ? checked : [];
    value.forEach((element: Json, index) => {
      lintDefaults(element, elements[index], pointer(at, index), add);
    });
  } else if (isObject(value) && isObject(checked)) {
    for (const [name, member] of Object.entries(value)) {
      lintDefaults(member, checked[name], pointer(at, name), add);
    }
  }
}

function lintValue(value: Json, at: string, add: Add): void {
  const note = (rule: string, message: string) => add(at, rule, message);
  if (value === "") note("empty_string", "some verifiers drop empty strings: leave it out or fill it");
  else if (value === null) note("null_value", "some verifiers drop null: leave it out");
  else if (typeof value === "number") {
    if (Number.isInteger(value) && !Number.isSafeInteger(value))
      note("large_integer", "beyond 2^53 numbers are not exact: write it as a string");
    if (Object.is(value, -0)) note("negative_zero", "it is signed as 0: write 0");
  } else if (Array.isArray(value)) {
    if (value.length === 0) note("empty_array", "some verifiers drop empty arrays: leave it out or fill it");
    value.forEach((element: Json, index) => {
      lintValue(element, pointer(at, index), add);
    });
  } else if (isObject(value)) {
    const names = Object.keys(value);
    if (names.length === 0)
      note("empty_object", "some verifiers drop empty objects: leave it out or fill it");
    if (names.includes("__proto__")) note("reserved_name", "some verifiers lose a member named __proto__");
    for (const name of names) lintValue(value[name] ?? null, pointer(at, name), add);
  }
}

function objects(value: Json | undefined): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter((element: Json) => isObject(element)) : [];
}

function lintInterfaces({ supportedInterfaces }: JsonObject, add: Add): void {
  objects(supportedInterfaces).forEach(({ url, protocolBinding, protocolVersion }, index) => {
    const at = `/supportedInterfaces/${index}`;
    const scheme = URL.parse(String(url))?.protocol;
    if (WEB_BINDINGS.has(protocolBinding ?? null) && scheme !== "https:" && scheme !== "http:") {
      add(`${at}/url`, "interface_url", "must be an absolute http or https URL");
    }
    if (!/^[0-9]+\.[0-9]+$/.test(String(protocolVersion))) {
      add(`${at}/protocolVersion`, "protocol_version", "must be major.minor, such as 1.0");
    }
  });
}

function lintSecurity({ securitySchemes, securityRequirements, skills }: JsonObject, add: Add): void {
  const declared = isObject(securitySchemes) ? securitySchemes : {};
  const check = (requirements: Json | undefined, parent: string) => {
    objects(requirements).forEach(({ schemes }, index) => {
      for (const name of Object.keys(isObject(schemes) ? schemes : {})) {
        if (Object.hasOwn(declared, name)) continue;
        const at = pointer(`${parent}/${index}/schemes`, name);
        add(at, "undeclared_scheme", "names no entry of securitySchemes");
      }
    });
  };
  check(securityRequirements, "/securityRequirements");
  objects(skills).forEach(({ securityRequirements: own }, index) => {
    check(own, `/skills/${index}/securityRequirements`);
  });
}

function lintSkills({ skills }: JsonObject, add: Add): void {
  const ids = new Set<string>();
  objects(skills).forEach(({ id }, index) => {
    if (ids.has(String(id))) add(`/skills/${index}/id`, "repeated_skill", "a skill's id is its own");
    ids.add(String(id));
  });
}
