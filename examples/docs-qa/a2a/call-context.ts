// From an HTTP request to the SDK's call context: who calls, which protocol version, which extensions.
// The gateway has verified the caller and says so in a header; the agent is reached by the gateway alone.
import type { IncomingMessage } from "node:http";
import { A2A_VERSION_HEADER, type AgentCard, Extensions, HTTP_EXTENSION_HEADER } from "@a2a-js/sdk";
import { ServerCallContext, type User, validateVersion } from "@a2a-js/sdk/server";

const CALLER_HEADER = "x-azp";

class Caller implements User {
  readonly userName: string;

  constructor(userName: string) {
    this.userName = userName;
  }

  get isAuthenticated(): boolean {
    return this.userName !== "";
  }
}

function header(request: IncomingMessage, name: string): string {
  const value = request.headers[name.toLowerCase()];
  return (Array.isArray(value) ? value.join(",") : value) ?? "";
}

/**
 * The call's context. Without the gateway's header the caller is nobody, who sees nobody else's tasks.
 * @throws VersionNotSupportedError (A2A 1.0, section 3.6.2)
 */
export function callContext(
  request: IncomingMessage,
  card: AgentCard,
  binding: "JSONRPC" | "HTTP+JSON",
): ServerCallContext {
  const extensions = header(request, HTTP_EXTENSION_HEADER);
  const version = header(request, A2A_VERSION_HEADER);
  const context = new ServerCallContext({
    user: new Caller(header(request, CALLER_HEADER)),
    ...(extensions !== "" && { requestedExtensions: Extensions.parseServiceParameter(extensions) }),
    ...(version !== "" && { requestedVersion: version }),
  });
  validateVersion(context.requestedVersion, card, binding);
  return context;
}
