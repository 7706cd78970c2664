// An Agent Card (A2A 1.0, section 4.4) as the rest of Drawbridge reads it: checked, defaults left out,
// signatures removed. Only members that are read are typed; the whole card was checked field by field.
import type { JsonObject } from "../domain/json.ts";

export interface AgentInterface {
  readonly url: string;
  /** `JSONRPC`, `GRPC`, `HTTP+JSON`, or a URI of another binding. */
  readonly protocolBinding: string;
  /** To be sent with every request to this interface, when there is one. */
  readonly tenant?: string;
  readonly protocolVersion: string;
}

export interface AgentExtension {
  readonly uri?: string;
  readonly description?: string;
  readonly required?: boolean;
  readonly params?: JsonObject;
}

export interface AgentCapabilities {
  readonly streaming?: boolean;
  readonly pushNotifications?: boolean;
  readonly extensions?: readonly AgentExtension[];
  readonly extendedAgentCard?: boolean;
}

export interface AgentSkill {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly examples?: readonly string[];
  readonly inputModes?: readonly string[];
  readonly outputModes?: readonly string[];
}

export interface AgentCard {
  readonly name: string;
  readonly description: string;
  readonly version: string;
  /** In order of preference. */
  readonly supportedInterfaces: readonly AgentInterface[];
  readonly provider?: { readonly url: string; readonly organization: string };
  readonly documentationUrl?: string;
  readonly iconUrl?: string;
  readonly capabilities: AgentCapabilities;
  readonly securitySchemes?: JsonObject;
  readonly securityRequirements?: readonly JsonObject[];
  readonly defaultInputModes: readonly string[];
  readonly defaultOutputModes: readonly string[];
  readonly skills: readonly AgentSkill[];
}

/**
 * URI of an extension (A2A 1.0, section 4.6) by which the agent keeps a message's task: a repeated `messageId` from the same caller, sent again by any method
 * and after a restart of either side, returns the first task instead of making another. A repeat with
 * other parts is refused. The caller need not activate it.
 */
export const MESSAGE_ID_IDEMPOTENCY = "urn:drawbridge:a2a:message-id-idempotency:v1";
