// The fields of an Agent Card, as a2a.proto of A2A 1.0 declares them: JSON name, type, presence.
// A test compares this table with the declaration that the Python SDK ships.
//
// Presence decides what is signed (A2A 1.0, sections 5.7 and 8.4.1):
// - required: must be there, and is signed even at its default;
// - explicit: may be there, and is signed when it is (`optional` fields, and every single message);
// - implicit: not signed at its default, so there and absent are the same card.

export type Presence = "required" | "explicit" | "implicit";
type Scalar = "string" | "bool" | "struct";

export interface Field {
  readonly type: Scalar | MessageName;
  /** One value, a JSON array of them, or a JSON object with them as its values. */
  readonly shape: "one" | "list" | "map";
  readonly presence: Presence;
}

export interface Message {
  readonly fields: Readonly<Record<string, Field>>;
  /** The fields are the variants of one oneof: at most one of them may be set. */
  readonly oneof: boolean;
}

export type MessageName =
  | "AgentCard"
  | "AgentInterface"
  | "AgentProvider"
  | "AgentCapabilities"
  | "AgentExtension"
  | "AgentSkill"
  | "AgentCardSignature"
  | "SecurityRequirement"
  | "StringList"
  | "SecurityScheme"
  | "APIKeySecurityScheme"
  | "HTTPAuthSecurityScheme"
  | "OAuth2SecurityScheme"
  | "OpenIdConnectSecurityScheme"
  | "MutualTlsSecurityScheme"
  | "OAuthFlows"
  | "AuthorizationCodeOAuthFlow"
  | "ClientCredentialsOAuthFlow"
  | "ImplicitOAuthFlow"
  | "PasswordOAuthFlow"
  | "DeviceCodeOAuthFlow";

type Fields = Message["fields"];
const message = (fields: Fields): Message => ({ fields, oneof: false });
const oneof = (fields: Fields): Message => ({ fields, oneof: true });
const required = (type: Field["type"], shape: Field["shape"] = "one"): Field => ({
  type,
  shape,
  presence: "required",
});
const explicit = (type: Field["type"]): Field => ({ type, shape: "one", presence: "explicit" });
const implicit = (type: Field["type"], shape: Field["shape"] = "one"): Field => ({
  type,
  shape,
  presence: "implicit",
});

export const MESSAGES: Readonly<Record<MessageName, Message>> = {
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
  APIKeySecurityScheme: message({
    description: implicit("string"),
    location: required("string"),
    name: required("string"),
  }),
  HTTPAuthSecurityScheme: message({
    description: implicit("string"),
    scheme: required("string"),
    bearerFormat: implicit("string"),
  }),
  OAuth2SecurityScheme: message({
    description: implicit("string"),
    flows: required("OAuthFlows"),
    oauth2MetadataUrl: implicit("string"),
  }),
  OpenIdConnectSecurityScheme: message({
    description: implicit("string"),
    openIdConnectUrl: required("string"),
  }),
  MutualTlsSecurityScheme: message({ description: implicit("string") }),
  OAuthFlows: oneof({
    authorizationCode: explicit("AuthorizationCodeOAuthFlow"),
    clientCredentials: explicit("ClientCredentialsOAuthFlow"),
    implicit: explicit("ImplicitOAuthFlow"),
    password: explicit("PasswordOAuthFlow"),
    deviceCode: explicit("DeviceCodeOAuthFlow"),
  }),
  AuthorizationCodeOAuthFlow: message({
    authorizationUrl: required("string"),
    tokenUrl: required("string"),
    refreshUrl: implicit("string"),
    scopes: required("string", "map"),
    pkceRequired: implicit("bool"),
  }),
  ClientCredentialsOAuthFlow: message({
    tokenUrl: required("string"),
    refreshUrl: implicit("string"),
    scopes: required("string", "map"),
  }),
  ImplicitOAuthFlow: message({
    authorizationUrl: implicit("string"),
    refreshUrl: implicit("string"),
    scopes: implicit("string", "map"),
  }),
  PasswordOAuthFlow: message({
    tokenUrl: implicit("string"),
    refreshUrl: implicit("string"),
    scopes: implicit("string", "map"),
  }),
  DeviceCodeOAuthFlow: message({
    deviceAuthorizationUrl: required("string"),
    tokenUrl: required("string"),
    refreshUrl: implicit("string"),
    scopes: required("string", "map"),
  }),
};
