// Checks the cards we issue against more than the protocol requires: only what every known canonicalizer
// signs alike. The SDKs drop empty and null members wherever they stand, and write large integers each in
// its own way, so a card that has none of these verifies everywhere.

import { isObject, type Json, type JsonObject, pointer } from "../domain/json.ts";
import { parseStrictJson } from "../domain/strict-json.ts";
import { checkCard } from "./card-fields.ts";
import { CARD_BYTES_MAX, problemOf } from "./reject-reasons.ts";

export interface LintFinding {
  /** A JSON pointer into the card, or `offset N` in its text. */
  readonly at: string;
  readonly rule: string;
  readonly message: string;
}

const WEB_BINDINGS: ReadonlySet<Json> = new Set(["JSONRPC", "HTTP+JSON"]);

/** Everything to be repaired in a card before it is signed and published; empty when it is fine. */
export function lintCard(bytes: Uint8Array): readonly LintFinding[] {
  let card: Json;
  try {
    card = parseStrictJson(bytes, CARD_BYTES_MAX);
  } catch (fault) {
    const { reason, at } = problemOf(fault);
    return [{ at, rule: reason, message: "it is not strict JSON; nothing else was checked" }];
  }
  const { payload, problems } = checkCard(card);
  const findings: LintFinding[] = problems.map(({ reason, at }) => ({
    at,
    rule: reason,
    message: "A2A 1.0 does not allow it here; every verifier should reject the card",
  }));
  const { signatures: _signatures, ...signed } = isObject(card) ? card : {};
  lintValue(signed, "", findings);
  if (problems.length === 0) {
    lintDefaults(signed, payload, "", findings);
    lintInterfaces(payload, findings);
    lintSecurity(payload, findings);
    lintSkills(payload, findings);
  }
  return findings;
}

/** A checked card lacks the defaults that the card spells out. */
function lintDefaults(value: Json, checked: Json | undefined, at: string, findings: LintFinding[]): void {
  if (checked === undefined) {
    findings.push({
      at,
      rule: "default_value",
      message: "it is the default and is not signed: leave it out",
    });
  } else if (Array.isArray(value)) {
    const elements = Array.isArray(checked) ? checked : [];
    value.forEach((element: Json, index) => {
      lintDefaults(element, elements[index], pointer(at, index), findings);
    });
  } else if (isObject(value) && isObject(checked)) {
    for (const [name, member] of Object.entries(value)) {
      lintDefaults(member, checked[name], pointer(at, name), findings);
    }
  }
}

function lintValue(value: Json, at: string, findings: LintFinding[]): void {
  const add = (rule: string, message: string) => findings.push({ at, rule, message });
  if (value === "") add("empty_string", "some verifiers drop empty strings: leave it out or fill it");
  else if (value === null) add("null_value", "some verifiers drop null: leave it out");
  else if (typeof value === "number") lintNumber(value, add);
  else if (Array.isArray(value)) {
    if (value.length === 0) add("empty_array", "some verifiers drop empty arrays: leave it out or fill it");
    value.forEach((element: Json, index) => {
      lintValue(element, pointer(at, index), findings);
    });
  } else if (isObject(value)) {
    const names = Object.keys(value);
    if (names.length === 0) add("empty_object", "some verifiers drop empty objects: leave it out or fill it");
    if (Object.hasOwn(value, "__proto__"))
      add("reserved_name", "some verifiers lose a member named __proto__");
    for (const name of names) lintValue(value[name] ?? null, pointer(at, name), findings);
  }
}

function lintNumber(value: number, add: (rule: string, message: string) => void): void {
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    add("large_integer", "beyond 2^53 numbers are not exact: write it as a string");
  }
  if (Object.is(value, -0)) add("negative_zero", "it is signed as 0: write 0");
}

function objects(value: Json | undefined): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter((element: Json) => isObject(element)) : [];
}

function lintInterfaces({ supportedInterfaces }: JsonObject, findings: LintFinding[]): void {
  objects(supportedInterfaces).forEach(({ url, protocolBinding, protocolVersion }, index) => {
    const at = pointer("/supportedInterfaces", index);
    const add = (field: string, rule: string, message: string) =>
      findings.push({ at: pointer(at, field), rule, message });
    const scheme = URL.parse(String(url))?.protocol;
    if (WEB_BINDINGS.has(protocolBinding ?? null) && scheme !== "https:" && scheme !== "http:") {
      add("url", "interface_url", "must be an absolute http or https URL");
    }
    if (!/^[0-9]+\.[0-9]+$/.test(String(protocolVersion))) {
      add("protocolVersion", "protocol_version", "must be major.minor, such as 1.0");
    }
  });
}

function lintSecurity(card: JsonObject, findings: LintFinding[]): void {
  const { securitySchemes, securityRequirements, skills } = card;
  const declared = isObject(securitySchemes) ? securitySchemes : {};
  const check = (requirements: Json | undefined, parent: string) => {
    objects(requirements).forEach(({ schemes }, index) => {
      for (const name of Object.keys(isObject(schemes) ? schemes : {})) {
        if (Object.hasOwn(declared, name)) continue;
        const at = pointer(pointer(pointer(parent, index), "schemes"), name);
        findings.push({ at, rule: "undeclared_scheme", message: "names no entry of securitySchemes" });
      }
    });
  };
  check(securityRequirements, "/securityRequirements");
  objects(skills).forEach(({ securityRequirements: own }, index) => {
    check(own, `/skills/${index}/securityRequirements`);
  });
}

function lintSkills({ skills }: JsonObject, findings: LintFinding[]): void {
  const seen = new Set<string>();
  objects(skills).forEach(({ id }, index) => {
    const at = `/skills/${index}/id`;
    if (seen.has(String(id)))
      findings.push({ at, rule: "repeated_skill", message: "a skill's id is its own" });
    seen.add(String(id));
  });
}
