// fed:link: cuts or heals the network between two organisations' homeservers.
import { parseOrganisation } from "../organisations.ts";
import { supervisorClient } from "../supervisor/client.ts";
import { namedLab, parseOptions, usageError } from "./options.ts";

const USAGE = `
Usage: ./task fed:link cut|heal ORG ORG [--name LAB]

Cuts or heals the federation link between two organisations, in both directions. What is under way on it
ends at once; what is sent meanwhile arrives after it is healed.
`;

export async function link(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, {}, 3);
  if (options === undefined) return 0;
  const [action, ...words] = options.positionals;
  const [one, other] = words.map(parseOrganisation);
  if ((action !== "cut" && action !== "heal") || one === undefined || other === undefined || one === other) {
    throw usageError("say cut or heal, and two organisations", USAGE);
  }
  await supervisorClient(namedLab(options)).execute({ action, between: [one, other] });
  process.stdout.write(`The link between ${one} and ${other} is ${action === "cut" ? "cut" : "healed"}.\n`);
  return 0;
}
