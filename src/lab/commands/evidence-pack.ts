// fed:evidence-pack: an evidence pack about a partner, made as its operator would make it, from inside and outside.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { isComplete, parseOrganisation, partnerOf } from "../organisations.ts";
import { findPrograms } from "../programs.ts";
import { namedLab, parseOptions } from "./options.ts";

const USAGE = `
Usage: ./task fed:evidence-pack PARTNER [--since TIME] [--output FOLDER] [--name LAB]

Looks at PARTNER (org-a or org-b) as the other organisation's operator, from inside and from outside, and writes
an evidence pack: a page and its JSON.

  --since TIME      from when on: 2026-01-31T03:00:00Z, or 2h for two hours ago; 24h when absent
  --output FOLDER   beside federation.yaml when absent
`;

export async function evidencePack(args: readonly string[]): Promise<number> {
  const options = parseOptions(args, USAGE, { since: { type: "string" }, output: { type: "string" } }, 1);
  if (options === undefined) return 0;
  const [named] = options.positionals;
  const partner = named === undefined ? undefined : parseOrganisation(named);
  if (partner === undefined || !isComplete(partner)) {
    throw new DrawbridgeError("usage", "name a partner: org-a or org-b", { mend: USAGE.trim() });
  }
  const own = namedLab(options).paths.organisation(partnerOf(partner));
  const words = [
    ...["federation", "evidence", partner, "--config", own.federationConfig, "--as", own.probeFile(partner)],
    ...["--since", options.text("since") ?? "24h"],
    ...["--output", options.text("output") ?? join(own.federation, "evidence")],
  ];
  return new Promise((done, failed) => {
    const child = spawn(findPrograms().drawbridge, words, { stdio: ["ignore", "inherit", "inherit"] });
    child.once("error", failed);
    child.once("close", (code) => done(code ?? 1));
  });
}
