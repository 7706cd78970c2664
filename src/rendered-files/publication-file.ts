// publication.yaml: which agents' cards a gateway publishes (plane 4, the publisher's side).
// Invariant: an agent that is not listed has no card route, and its card path answers 404.
import { z } from "zod";
import { parseAgentId } from "../domain/identifiers.ts";
import { AbsolutePath, UpstreamUrl } from "./fields.ts";

const AgentName = z
  .string()
  .refine((value) => parseAgentId(value) !== undefined, { error: "not an agent name" });

export const PublishedCard = z.strictObject({
  /** The agent, reached by the gateway alone; its card is fetched from this origin. */
  upstream: UpstreamUrl,
  /** Where the agent itself serves its card. */
  upstreamCardPath: AbsolutePath.default("/.well-known/agent-card.json"),
  /** Public, GET, no token. */
  cardPath: AbsolutePath,
});
export type PublishedCard = z.output<typeof PublishedCard>;

export const PublicationFile = z.strictObject({
  version: z.literal(1),
  cards: z.record(AgentName, PublishedCard),
});
export type PublicationFile = z.output<typeof PublicationFile>;
