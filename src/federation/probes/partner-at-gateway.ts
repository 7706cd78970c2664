// Probes of planes 5 and 4, as the partner's client: a token, the exact POST of an invocation, the card.
// Invariants: the invocation asks for a task that does not exist, so that an agent which is reached does no work; no
// redirect is followed; tokens and secrets are held in memory alone, and only their use is reported.
import { request } from "undici";
import type { Clock } from "../../domain/clock.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { basicAuthorization, readBounded, SHARED_AGENT } from "../../runtime/http.ts";
import { readSecret } from "../../runtime/secrets.ts";
import type { ProbeConfig } from "./config.ts";
import {
  notConfigured,
  observe,
  type ProbeResult,
  type ProbeSubject,
  readCardAnswer,
  readInvokeAnswer,
  readTokenAnswer,
} from "./read-answers.ts";
import type { ProbeSources } from "./user.ts";

const TIMEOUT_MS = 20_000;
const BODY_BYTES_MAX = 64 * 1024;

type Agent = ProbeConfig["target"]["agents"][number];

/** One request, a GET unless it has a body; any status is an answer. @throws as the network does, and for a long body */
async function ask(url: string, headers: Readonly<Record<string, string>> = {}, body?: string) {
  const response = await request(url, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body ?? null,
    signal: AbortSignal.timeout(TIMEOUT_MS),
    dispatcher: SHARED_AGENT,
  });
  const contentType = response.headers["content-type"];
  const text = await readBounded(response.body, BODY_BYTES_MAX);
  if (text === undefined) throw new RangeError("the answer is longer than any that is known");
  const status = response.statusCode;
  return { status, text, contentType: typeof contentType === "string" ? contentType : "" };
}

export async function requestToken(config: ProbeConfig): Promise<ProbeResult & { readonly token?: string }> {
  const { client } = config.as;
  const { tokenEndpoint, audience } = config.target;
  if (client === undefined) return notConfigured("client");
  if (tokenEndpoint === undefined) return notConfigured("token_endpoint");
  const form = new URLSearchParams({ grant_type: "client_credentials" });
  if (audience !== undefined) form.set("resource", audience);
  const headers = {
    authorization: basicAuthorization(client.clientId, readSecret(client.clientSecret, config.directory)),
    "content-type": "application/x-www-form-urlencoded",
  };
  return readTokenAnswer(await ask(tokenEndpoint, headers, form.toString()));
}

export async function invoke(agent: Agent, token: string | undefined, { random }: ProbeSources) {
  const id = random.bytes(16).toString("hex");
  const headers = {
    "content-type": "application/json",
    "a2a-version": "1.0",
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id, method: "GetTask", params: { id } });
  return readInvokeAnswer(await ask(agent.invokeUrl, headers, body));
}

export async function probeInvocation(config: ProbeConfig, sources: ProbeSources): Promise<EvidenceItem[]> {
  const about = { plane: "gateway", partner: config.as.serverName, vantage: "partner" } as const;
  let token: string | undefined;
  const { client } = config.as;
  const asking = { ...about, probe: "token_request", subject: client?.clientId ?? null } as const;
  const tokenItem = await observe(asking, sources.clock, async () => {
    const { token: issued, ...finding } = await requestToken(config);
    token = issued;
    return finding;
  });
  if (token === undefined && client?.heldToken !== undefined)
    token = readSecret(client.heldToken, config.directory);
  const invocations = await atEachAgent(config, { ...about, probe: "invoke" }, sources.clock, (agent) =>
    invoke(agent, token, sources),
  );
  return [tokenItem, ...invocations];
}

export function probeCards(config: ProbeConfig, { clock }: ProbeSources): Promise<EvidenceItem[]> {
  const partner = config.as.serverName;
  const about = { plane: "card", partner, vantage: "partner", probe: "card_fetch" } as const;
  return atEachAgent(config, about, clock, async ({ cardUrl }) => readCardAnswer(await ask(cardUrl)));
}

async function atEachAgent(
  { target: { agents } }: ProbeConfig,
  about: Omit<ProbeSubject, "subject">,
  clock: Clock,
  attempt: (agent: Agent) => Promise<ProbeResult>,
): Promise<EvidenceItem[]> {
  const items: EvidenceItem[] = [];
  for (const agent of agents)
    items.push(await observe({ ...about, subject: agent.name }, clock, () => attempt(agent)));
  if (items.length > 0) return items;
  return [await observe({ ...about, subject: null }, clock, () => notConfigured("agents"))];
}
