// fed:evidence-pack: an evidence pack about a partner, made as its operator would make it, from inside and outside.
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { partnerOf } from "../organisations.ts";
import { runDrawbridge } from "../programs.ts";
import { completeOrganisation, namedLab, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:evidence-pack PARTNER [--since TIME] [--output FOLDER] [--name LAB]

Observes PARTNER as the other organisation's operator, from inside and from outside, writes an evidence pack,
and checks every digest of it.

  PARTNER          org-a or org-b, or its server name
  --since TIME     from when on: 2026-01-31T03:00:00Z, or 2h for two hours ago; 24h when absent
  --output FOLDER  beside federation.yaml when absent

  0  written, and every digest is right
`;

export async function evidencePack(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { since: { type: "string" }, output: { type: "string" } }, 1);
  if (options === undefined) return 0;
  const [named] = options.positionals;
  if (named === undefined) throw new DrawbridgeError("usage", "name a partner", { hint: USAGE.trim() });
  const lab = namedLab(options);
  const partner = completeOrganisation(lab, named, USAGE);
  const own = lab.paths.organisation(partnerOf(partner));
  const output = options.text("output");
  const words = [
    ...[
      "federation",
      "evidence",
      partner,
      "--config",
      own.federationConfig,
      "--probe-config",
      own.probeFile(partner),
    ],
    ...["--since", options.text("since") ?? "24h"],
    ...["--output", output ?? join(own.federation, "evidence")],
  ];
  // Paths that the operator types are relative to the working directory.
  const made = await runDrawbridge(words, process.cwd());
  process.stdout.write(made.stdout);
  const pack = made.stdout.split("\n")[0];
  if (made.code !== 0 || pack === undefined) return made.code === 0 ? 1 : made.code;
  const verified = await runDrawbridge(["federation", "evidence", "--verify", pack], process.cwd());
  process.stdout.write(verified.stdout);
  return verified.code;
}
