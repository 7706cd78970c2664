// Checks a parsed card against the declared fields and leaves defaults out, in one pass. Invariants: exact JSON names and
// exact types, nothing converted; unknown fields and null are refused; every problem is collected; what comes back contains
// exactly what A2A 1.0, section 8.4.1 has signed.
import { emptyObject, isObject, type Json, type JsonObject, pointer } from "../domain/json.ts";
import type { CardProblem, RejectReason } from "./reject-reasons.ts";

/** An Agent Card (A2A 1.0, section 4.4), checked, without defaults and signatures. Only members that are read are typed. */
export interface AgentCard {
  readonly name: string;
  readonly description: string;
  readonly version: string;
  /** In order of preference. */
  readonly supportedInterfaces: readonly {
    readonly url: string;
    readonly protocolBinding: string;
    readonly tenant?: string;
    readonly protocolVersion: string;
  }[];
  readonly provider?: { readonly organization: string };
  readonly iconUrl?: string;
  readonly capabilities: {
    readonly streaming?: boolean;
    readonly extensions?: readonly { readonly uri?: string }[];
  };
  readonly defaultInputModes: readonly string[];
  readonly skills: readonly {
    readonly name: string;
    readonly description: string;
    readonly inputModes?: readonly string[];
    readonly examples?: readonly string[];
  }[];
}

/**
 * URI of an extension (A2A 1.0, section 4.6), which the caller need not activate: a repeated `messageId` from the same
 * caller, by any method and after a restart of either side, returns the first task; with other parts it is refused.
 */
export const MESSAGE_ID_IDEMPOTENCY = "urn:drawbridge:a2a:message-id-idempotency:v1";

export interface CardSignature {
  readonly protected: string;
  readonly signature: string;
  readonly header?: JsonObject;
}

/**
 * Checks a whole card. Only when `problems` is empty do the others hold what they say: `signatures`, and `payload`, the card
 * without these and without defaults, which is canonicalized and signed.
 */
export function checkCard(value: Json) {
  const problems: CardProblem[] = [];
  const { signatures = [], ...members } = checkMessage("AgentCard", value, "", problems);
  const payload: JsonObject = Object.assign(emptyObject(), members);
  // The check above covers each member that this type names.
  return { payload, signatures: signatures as unknown as readonly CardSignature[], problems };
}

function checkMessage(name: string, value: Json, at: string, problems: CardProblem[]): JsonObject {
  const kept = emptyObject();
  if (!isObject(value)) {
    problems.push({ reason: "wrong_type", at });
    return kept;
  }
  const { fields, oneof } = MESSAGES[name] as Message;
  const report = (reason: RejectReason, field?: string) =>
    problems.push({ reason, at: field === undefined ? at : pointer(at, field) });

  for (const member of Object.keys(value)) {
    if (!Object.hasOwn(fields, member)) report("unknown_field", member);
  }
  for (const [fieldName, field] of Object.entries(fields)) {
    const member = value[fieldName];
    if (member === undefined) {
      if (field.presence === "required") report("missing_field", fieldName);
      continue;
    }
    const checked = checkField(field, member, pointer(at, fieldName), problems);
    if (field.presence !== "implicit" || !isDefault(checked)) kept[fieldName] = checked;
  }
  if (oneof && Object.keys(kept).length > 1) report("ambiguous_variant");
  return kept;
}

function checkField(field: Field, value: Json, at: string, problems: CardProblem[]): Json {
  if (field.shape === "one") return checkOne(field.type, value, at, problems);
  if (field.shape === "list" && Array.isArray(value)) {
    return value.map((element, index) => checkOne(field.type, element, pointer(at, index), problems));
  }
  if (field.shape === "map" && isObject(value)) {
    const kept = emptyObject();
    for (const [key, element] of Object.entries(value)) {
      kept[key] = checkOne(field.type, element, pointer(at, key), problems);
    }
    return kept;
  }
  problems.push({ reason: "wrong_type", at });
  return value;
}

function checkOne(type: string, value: Json, at: string, problems: CardProblem[]): Json {
  const isOfType = SINGLE_TYPES[type];
  if (isOfType === undefined) return checkMessage(type, value, at, problems);
  if (!isOfType(value)) problems.push({ reason: "wrong_type", at });
  return value;
}

const SINGLE_TYPES: Readonly<Record<string, (value: Json) => boolean>> = {
  string: (value) => typeof value === "string",
  bool: (value) => typeof value === "boolean",
  /** google.protobuf.Struct: any JSON object, every member of it significant, empty ones too. */
  struct: isObject,
};

/** Protocol Buffers' default of a field without presence: "", false, no element. */
function isDefault(value: Json): boolean {
  if (value === "" || value === false) return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}

// The fields of an Agent Card, as a2a.proto of A2A 1.0 declares them: JSON name, type, presence.
// A test compares this table with the declaration that the Python SDK ships.
//
// Presence decides what is signed (A2A 1.0, sections 5.7 and 8.4.1):
// - required: must be there, and is signed even at its default;
// - explicit: may be there, and is signed when it is (`optional` fields, and every single message);
// - implicit: not signed at its default, so there and absent are the same card.

export interface Field {
  /** `string`, `bool`, `struct`, or one of the messages. */
  readonly type: string;
  /** One value, a JSON array of them, or a JSON object with them as its values. */
  readonly shape: "one" | "list" | "map";
  readonly presence: "required" | "explicit" | "implicit";
}

export interface Message {
  readonly fields: Readonly<Record<string, Field>>;
  /** The fields are the variants of one oneof: at most one of them may be set. */
  readonly oneof: boolean;
}

const message = (fields: Message["fields"]): Message => ({ fields, oneof: false });
const oneof = (fields: Message["fields"]): Message => ({ fields, oneof: true });
const field =
  (presence: Field["presence"]) =>
  (type: string, shape: Field["shape"] = "one"): Field => ({ type, shape, presence });
const [required, explicit, implicit] = [field("required"), field("explicit"), field("implicit")];

const TOKENS = {
  tokenUrl: required("string"),
  refreshUrl: implicit("string"),
  scopes: required("string", "map"),
};

const DESCRIBED = { description: implicit("string") };
/** Of the flows that OAuth 2.1 no longer has: nothing in them is required. */
const DEPRECATED_FLOW = { refreshUrl: implicit("string"), scopes: implicit("string", "map") };

export const MESSAGES: Readonly<Record<string, Message>> = {
  AgentCard: message({
    name: required("string"),
    description: required("string"),
    supportedInterfaces: required("AgentInterface", "list"),
    provider: explicit("AgentProvider"),
    version: required("string"),
    documentationUrl: explicit("string"),
    capabilities: required("AgentCapabilities"),
    securitySchemes: implicit("SecurityScheme", "map"),
    securityRequirements: implicit("SecurityRequirement", "list"),
    defaultInputModes: required("string", "list"),
    defaultOutputModes: required("string", "list"),
    skills: required("AgentSkill", "list"),
    signatures: implicit("AgentCardSignature", "list"),
    iconUrl: explicit("string"),
  }),
  AgentInterface: message({
    url: required("string"),
    protocolBinding: required("string"),
    tenant: implicit("string"),
    protocolVersion: required("string"),
  }),
  AgentProvider: message({ url: required("string"), organization: required("string") }),
  AgentCapabilities: message({
    streaming: explicit("bool"),
    pushNotifications: explicit("bool"),
    extensions: implicit("AgentExtension", "list"),
    extendedAgentCard: explicit("bool"),
  }),
  AgentExtension: message({
    uri: implicit("string"),
    description: implicit("string"),
    required: implicit("bool"),
    params: explicit("struct"),
  }),
  AgentSkill: message({
    id: required("string"),
    name: required("string"),
    description: required("string"),
    tags: required("string", "list"),
    examples: implicit("string", "list"),
    inputModes: implicit("string", "list"),
    outputModes: implicit("string", "list"),
    securityRequirements: implicit("SecurityRequirement", "list"),
  }),
  AgentCardSignature: message({
    protected: required("string"),
    signature: required("string"),
    header: explicit("struct"),
  }),
  SecurityRequirement: message({ schemes: implicit("StringList", "map") }),
  StringList: message({ list: implicit("string", "list") }),
  SecurityScheme: oneof({
    apiKeySecurityScheme: explicit("APIKeySecurityScheme"),
    httpAuthSecurityScheme: explicit("HTTPAuthSecurityScheme"),
    oauth2SecurityScheme: explicit("OAuth2SecurityScheme"),
    openIdConnectSecurityScheme: explicit("OpenIdConnectSecurityScheme"),
    mtlsSecurityScheme: explicit("MutualTlsSecurityScheme"),
  }),
  APIKeySecurityScheme: message({ ...DESCRIBED, location: required("string"), name: required("string") }),
  HTTPAuthSecurityScheme: message({
    ...DESCRIBED,
    scheme: required("string"),
    bearerFormat: implicit("string"),
  }),
  OAuth2SecurityScheme: message({
    ...DESCRIBED,
    flows: required("OAuthFlows"),
    oauth2MetadataUrl: implicit("string"),
  }),
  OpenIdConnectSecurityScheme: message({ ...DESCRIBED, openIdConnectUrl: required("string") }),
  MutualTlsSecurityScheme: message(DESCRIBED),
  OAuthFlows: oneof({
    authorizationCode: explicit("AuthorizationCodeOAuthFlow"),
    clientCredentials: explicit("ClientCredentialsOAuthFlow"),
    implicit: explicit("ImplicitOAuthFlow"),
    password: explicit("PasswordOAuthFlow"),
    deviceCode: explicit("DeviceCodeOAuthFlow"),
  }),
  AuthorizationCodeOAuthFlow: message({
    authorizationUrl: required("string"),
    ...TOKENS,
    pkceRequired: implicit("bool"),
  }),
  ClientCredentialsOAuthFlow: message(TOKENS),
  ImplicitOAuthFlow: message({ authorizationUrl: implicit("string"), ...DEPRECATED_FLOW }),
  PasswordOAuthFlow: message({ tokenUrl: implicit("string"), ...DEPRECATED_FLOW }),
  DeviceCodeOAuthFlow: message({ deviceAuthorizationUrl: required("string"), ...TOKENS }),
};
