// Requests of the probes. Invariants: no redirect is followed, an answer is read up to a bound, and what a
// request needs (tokens, secrets) is held in memory alone.
import { request } from "undici";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { basicAuthorization } from "../../runtime/http.ts";
import { readSecret } from "../../runtime/secrets.ts";
import type { ProbeConfig } from "./config.ts";
import {
  notConfigured,
  observe,
  type ProbeAnswer,
  type ProbeResult,
  readCardAnswer,
  readInvokeAnswer,
  readTokenAnswer,
} from "./read-answers.ts";
import type { ProbeSources } from "./user.ts";

const TIMEOUT_MS = 20_000;
const BODY_BYTES_MAX = 64 * 1024;

interface RequestOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** One request; any status is an answer. @throws whatever the network throws */
export async function ask(
  url: string,
  method: "GET" | "POST" | "PUT",
  options: RequestOptions = {},
): Promise<ProbeAnswer> {
  const response = await request(url, {
    method,
    headers: { ...options.headers },
    body: options.body ?? null,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const contentType = response.headers["content-type"];
  return {
    status: response.statusCode,
    contentType: typeof contentType === "string" ? contentType : "",
    text: await headOf(response.body),
  };
}

/** The beginning of a body; what is longer is not waited for. */
async function headOf(body: AsyncIterable<Uint8Array> & { destroy(): unknown }): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length < BODY_BYTES_MAX) continue;
    body.destroy();
    break;
  }
  return Buffer.concat(chunks).subarray(0, BODY_BYTES_MAX).toString("utf8");
}

// Probes of planes 5 and 4, as the partner's client: a token, the exact POST of an invocation, the card.
// Invariants: the invocation asks for a task that does not exist, so that an agent which is reached does no
// work; a token is held in memory alone, and only its use is reported.

type Agent = ProbeConfig["target"]["agents"][number];

/** Asks the target's issuer for a token, as the partner's client; without a token where it is refused. */
export async function requestToken(config: ProbeConfig): Promise<ProbeResult & { readonly token?: string }> {
  const { client } = config.as;
  const { tokenEndpoint, audience } = config.target;
  if (client === undefined) return notConfigured("client");
  if (tokenEndpoint === undefined) return notConfigured("token_endpoint");
  const form = new URLSearchParams({ grant_type: "client_credentials" });
  if (audience !== undefined) form.set("resource", audience);
  const answer = await ask(tokenEndpoint, "POST", {
    headers: {
      authorization: basicAuthorization(client.clientId, readSecret(client.clientSecret, config.directory)),
      "content-type": "application/x-www-form-urlencoded",
    },
    body: form.toString(),
  });
  return readTokenAnswer(answer);
}

/** Asks an agent for a task that does not exist, with a token or without. */
export async function invoke(
  agent: Agent,
  token: string | undefined,
  sources: Pick<ProbeSources, "random">,
): Promise<ProbeResult> {
  const id = sources.random.bytes(16).toString("hex");
  const answer = await ask(agent.invokeUrl, "POST", {
    headers: {
      "content-type": "application/json",
      "a2a-version": "1.0",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, method: "GetTask", params: { id } }),
  });
  return readInvokeAnswer(answer);
}

/** Plane 5: may the partner's client get a token, and may it invoke the agents? */
export async function probeInvocation(config: ProbeConfig, sources: ProbeSources): Promise<EvidenceItem[]> {
  const about = { plane: "gateway", partner: config.as.serverName, vantage: "partner" } as const;
  let token: string | undefined;
  const { client } = config.as;
  const tokenItem = await observe(
    { ...about, probe: "token_request", subject: client?.clientId ?? null },
    sources.clock,
    async () => {
      const { token: issued, ...finding } = await requestToken(config);
      token = issued;
      return finding;
    },
  );
  if (token === undefined && client?.heldToken !== undefined) {
    token = readSecret(client.heldToken, config.directory);
  }
  const items: EvidenceItem[] = [tokenItem];
  for (const agent of config.target.agents) {
    const subject = { ...about, probe: "invoke", subject: agent.name } as const;
    items.push(await observe(subject, sources.clock, () => invoke(agent, token, sources)));
  }
  if (config.target.agents.length === 0) {
    const subject = { ...about, probe: "invoke", subject: null } as const;
    items.push(await observe(subject, sources.clock, () => notConfigured("agents")));
  }
  return items;
}

/** Plane 4: is the card public? */
export async function probeCards(config: ProbeConfig, { clock }: ProbeSources): Promise<EvidenceItem[]> {
  const partner = config.as.serverName;
  const about = { plane: "card", partner, vantage: "partner", probe: "card_fetch" } as const;
  if (config.target.agents.length === 0) {
    return [await observe({ ...about, subject: null }, clock, () => notConfigured("agents"))];
  }
  const items: EvidenceItem[] = [];
  for (const agent of config.target.agents) {
    const fetchCard = async () => readCardAnswer(await ask(agent.cardUrl, "GET"));
    items.push(await observe({ ...about, subject: agent.name }, clock, fetchCard));
  }
  return items;
}
