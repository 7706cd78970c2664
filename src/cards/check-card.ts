// Checks a parsed card against the declared fields and leaves defaults out, in one pass.
// Invariants: exact JSON names and exact types, nothing converted; unknown fields and null are refused;
// every problem is collected; what comes back contains exactly what A2A 1.0, section 8.4.1 has signed.

import { emptyObject, isJsonObject, type Json, type JsonObject, pointer } from "../domain/json.ts";
import type { AgentCard } from "./agent-card.ts";
import type { CardProblem, RejectReason } from "./card-faults.ts";
import { type Field, MESSAGES, type MessageName } from "./card-fields.ts";

export interface CardSignature {
  readonly protected: string;
  readonly signature: string;
  readonly header?: JsonObject;
}

export interface CheckedCard {
  /** The card without signatures and without unsigned defaults: what is canonicalized and signed. */
  readonly payload: JsonObject;
  readonly signatures: readonly CardSignature[];
  readonly problems: readonly CardProblem[];
  /** Where the card spells out a default that is not signed (JSON pointers). */
  readonly unsignedDefaults: readonly string[];
}

interface Findings {
  readonly problems: CardProblem[];
  readonly unsignedDefaults: string[];
}

/** Checks a whole card. Only when `problems` is empty do `payload` and `signatures` hold what they say. */
export function checkCard(value: Json): CheckedCard {
  const found: Findings = { problems: [], unsignedDefaults: [] };
  const { signatures = [], ...members } = checkMessage("AgentCard", value, "", found);
  const payload = Object.assign(emptyObject(), members);
  // The check above covers each member that this type names.
  return { payload, signatures: signatures as unknown as readonly CardSignature[], ...found };
}

/** The payload of a card without problems, typed. */
export function asAgentCard(payload: JsonObject): AgentCard {
  return payload as unknown as AgentCard;
}

function checkMessage(name: MessageName, value: Json, at: string, found: Findings): JsonObject {
  const kept = emptyObject();
  if (!isJsonObject(value)) {
    found.problems.push({ reason: "wrong_type", at });
    return kept;
  }
  const { fields, oneof } = MESSAGES[name];
  const report = (reason: RejectReason, field?: string) =>
    found.problems.push({ reason, at: field === undefined ? at : pointer(at, field) });

  for (const member of Object.keys(value)) {
    if (!Object.hasOwn(fields, member)) report("unknown_field", member);
  }
  for (const [fieldName, field] of Object.entries(fields)) {
    const member = value[fieldName];
    if (member === undefined) {
      if (field.presence === "required") report("missing_field", fieldName);
      continue;
    }
    const fieldAt = pointer(at, fieldName);
    const checked = checkField(field, member, fieldAt, found);
    if (field.presence === "implicit" && isDefault(checked)) found.unsignedDefaults.push(fieldAt);
    else kept[fieldName] = checked;
  }
  if (oneof && Object.keys(kept).length > 1) report("ambiguous_variant");
  return kept;
}

function checkField(field: Field, value: Json, at: string, found: Findings): Json {
  if (field.shape === "one") return checkOne(field.type, value, at, found);
  if (field.shape === "list" && Array.isArray(value)) {
    return value.map((element, index) => checkOne(field.type, element, pointer(at, index), found));
  }
  if (field.shape === "map" && isJsonObject(value)) {
    const kept = emptyObject();
    for (const [key, element] of Object.entries(value)) {
      kept[key] = checkOne(field.type, element, pointer(at, key), found);
    }
    return kept;
  }
  found.problems.push({ reason: "wrong_type", at });
  return value;
}

function checkOne(type: Field["type"], value: Json, at: string, found: Findings): Json {
  const expect = (holds: boolean): Json => {
    if (!holds) found.problems.push({ reason: "wrong_type", at });
    return value;
  };
  switch (type) {
    case "string":
      return expect(typeof value === "string");
    case "bool":
      return expect(typeof value === "boolean");
    case "struct":
      // google.protobuf.Struct: any JSON object, every member of it significant, empty ones too.
      return expect(isJsonObject(value));
    default:
      return checkMessage(type, value, at, found);
  }
}

/** Protocol Buffers' default of a field without presence: "", false, no element. */
function isDefault(value: Json): boolean {
  if (value === "" || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  return isJsonObject(value) && Object.keys(value).length === 0;
}
