// fed:agent: any A2A agent becomes a ghost of one organisation's bridge, through its registry, and goes again.
// Invariant: the product's own commands do it, as its operator runs them.
import { resolve } from "node:path";
import { renderJson } from "../../src/cli/lib/command.ts";
import { type AgentId, ghostOf, parseAgentId } from "../../src/domain/identifiers.ts";
import { GHOST_PREFIX } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { runDrawbridge } from "../programs.ts";
import {
  completeOrganisation,
  FLAG,
  namedLab,
  parseOptions,
  runningSeed,
  TEXT,
  usageError,
  withLockedLab,
} from "./options.ts";

const USAGE = `
Usage: ./task fed:agent add NAME --card-url URL --jwks FILE [--key-id ID] [--org ORG] [--json] [--name LAB]
       ./task fed:agent remove NAME [--org ORG] [--json] [--name LAB]

"add" runs "drawbridge agent add" as the organisation's operator: the card is verified by the key, the registry names
the agent, and its ghost is registered: ./task fed:ask --from ORG --to NAME "QUESTION" asks it, and so does whoever
invites the ghost to a room and mentions it. "remove" runs "drawbridge agent remove".

  --card-url URL  where the agent serves its signed card
  --jwks FILE     the public key that signs the card: a JWK or a JWK set (drawbridge card keygen, card sign)
  --key-id ID     which key of the set
  --org ORG       the organisation whose bridge carries it; org-b when absent

  0  done, and the bridge has verified the agent
  2  the command line is wrong; nothing was changed
  3  there is no card at the address; nothing was changed
  4  refused, such as a card that another key has signed; nothing was changed
  5  changed, and the bridge has not confirmed it yet: run it again
`;

export async function agentTask(args: readonly string[]): Promise<number> {
  const specs = { "card-url": TEXT, jwks: TEXT, "key-id": TEXT, org: TEXT, json: FLAG };
  const options = parseOptions(args, USAGE, specs, 2);
  if (options === undefined) return 0;
  const [act, name] = options.positionals;
  const agent = name === undefined ? undefined : parseAgentId(name);
  if ((act !== "add" && act !== "remove") || agent === undefined) {
    throw usageError("say add or remove, and a name of a to z, 0 to 9, '.', '_' and '-'", USAGE);
  }
  const lab = namedLab(options);
  runningSeed(lab);
  const org = completeOrganisation(lab, options.text("org") ?? "org-b", USAGE);
  const json = options.flag("json");
  const words = act === "remove" ? ["agent", "remove", agent] : addWords(agent, options.text);
  return withLockedLab(lab, () => run({ lab, org, agent, words, json }));
}

function addWords(agent: AgentId, text: (name: string) => string | undefined): readonly string[] {
  const cardUrl = text("card-url");
  const jwks = text("jwks");
  if (cardUrl === undefined || jwks === undefined) {
    throw usageError("add needs --card-url URL and --jwks FILE", USAGE);
  }
  if (!URL.canParse(cardUrl)) throw usageError("--card-url must be a whole URL", USAGE);
  const keyId = text("key-id");
  return [
    ...["agent", "add", agent, "--card-url", cardUrl, "--jwks", resolve(jwks)],
    // The lab's agents are on this machine, whatever name they are reached by.
    ...["--allowed-origin", new URL(cardUrl).origin],
    ...(keyId === undefined ? [] : ["--key-id", keyId]),
  ];
}

interface Run {
  readonly lab: Lab;
  readonly org: CompleteOrganisation;
  readonly agent: AgentId;
  readonly words: readonly string[];
  readonly json: boolean;
}

async function run({ lab, org, agent, words, json }: Run): Promise<number> {
  const { federation, federationConfig } = lab.paths.organisation(org);
  const args = [...words, "--config", federationConfig, ...(json ? ["--json"] : [])];
  const { code, stdout } = await runDrawbridge(args, federation);
  const ghost = ghostOf(GHOST_PREFIX, agent, lab.serverNames[org]);
  if (!json) process.stdout.write(`${stdout}${code === 0 || code === 5 ? `Ghost: ${ghost}\n` : ""}`);
  else if (stdout !== "")
    process.stdout.write(renderJson({ ghost, organisation: org, ...JSON.parse(stdout) }));
  return code;
}
