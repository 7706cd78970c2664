// The appservice registration file: what the homeserver has to know of the bridge (Matrix application
// service API, "Registration"). Pure.
// Invariants: the user namespace is exactly the ghosts', whole user IDs of this server alone; a homeserver
// matches it from the start of the user ID only (Python's `re.match`), so it is anchored at both ends here.
import { stringify } from "yaml";
import { literalPattern } from "../../domain/literal-pattern.ts";
import type { BridgeConfig } from "../config.ts";

export type AppserviceTokens = { readonly asToken: string; readonly hsToken: string };

export function ghostNamespace(config: Pick<BridgeConfig, "appservice" | "homeserver">): string {
  return `^@${literalPattern(config.appservice.ghostPrefix)}.*:${literalPattern(config.homeserver.serverName)}$`;
}

/** The registration as YAML. It holds both tokens: a secret. */
export function renderRegistration(
  config: Pick<BridgeConfig, "appservice" | "homeserver">,
  tokens: AppserviceTokens,
): string {
  const { appservice } = config;
  const registration = {
    id: appservice.id,
    url: appservice.url,
    as_token: tokens.asToken,
    hs_token: tokens.hsToken,
    sender_localpart: appservice.senderLocalpart,
    rate_limited: false,
    namespaces: { users: [{ exclusive: true, regex: ghostNamespace(config) }], aliases: [], rooms: [] },
  };
  // One by one: a homeserver that knows none of a flag's names leaves the feature off without a word.
  const flags = {
    receive_ephemeral: true,
    "de.sorunome.msc2409.push_ephemeral": true,
    "org.matrix.msc3202": true,
    "io.element.msc4190": true,
  };
  return [
    "# Registration of the Drawbridge application service. It holds secrets: keep it 0600.",
    `# Rendered by \`drawbridge bridge registration\`; change the bridge's configuration instead.`,
    stringify(registration, { lineWidth: 0 }).trimEnd(),
    "# The ghosts' own devices (MSC4190) and, for encrypted rooms, their keys (MSC2409, MSC3202).",
    stringify(flags, { lineWidth: 0 }),
  ].join("\n");
}
