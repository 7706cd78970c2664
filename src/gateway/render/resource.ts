// Envoy's configuration as plain JSON values, and the discovery response that carries it.
// JSON, not YAML: a client called "yes" or "0x10" must stay a string for every parser.
// Invariant: version_info is the digest of what is delivered, so equal content has an equal version.
import { sha256Tagged } from "../../domain/digest.ts";
import type { JsonObject } from "../../domain/json.ts";

/** An `Any`: a typed extension configuration. */
export function typed(type: string, fields: JsonObject = {}): JsonObject {
  return { "@type": `type.googleapis.com/${type}`, ...fields };
}

export function extension(name: string, type: string, fields: JsonObject = {}): JsonObject {
  return { name, typed_config: typed(type, fields) };
}

export function socketAddress(host: string, port: number): JsonObject {
  return { socket_address: { address: host, port_value: port } };
}

/** The version Envoy reports in `version_text` once it serves these resources. */
export function versionOf(resources: readonly JsonObject[]): string {
  return sha256Tagged(JSON.stringify(resources));
}

export function discoveryResponse(resources: readonly JsonObject[]): JsonObject {
  return { version_info: versionOf(resources), resources };
}
